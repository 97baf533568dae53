"""What can go wrong between the guard and the API server.

::

    GuardError
    └── ApiError               an answer that is no success; carries operation, status and reason
        ├── NotFoundError      404
        ├── ConflictError      409, another writer was faster: read again
        ├── GoneError          410, the resource version is too old: list again
        ├── ForbiddenError     401 and 403, the token or the rights are wrong
        ├── RejectedError      400, 413, 415, 422: the request itself is wrong
        └── UnavailableError   429, 5xx, no connection, no answer in time: try later

Network failures are in the tree because the client library raises another family for them, and a
caller that caught only one of the two would die of the other.
"""

_QUOTED = 256


class GuardError(Exception):
    """Base of everything this package raises on purpose."""


class ApiError(GuardError):
    """A request to the API server failed. ``status`` is 0 where there was no answer."""

    reason = "error"

    def __init__(self, operation: str, status: int, detail: str) -> None:
        self.operation = operation
        self.status = status
        self.detail = detail[:_QUOTED]
        super().__init__(f"{operation}: {status or 'no answer'}: {self.detail}")


class NotFoundError(ApiError):
    """The object does not exist."""

    reason = "not_found"


class ConflictError(ApiError):
    """The object changed since it was read, or exists already."""

    reason = "conflict"


class GoneError(ApiError):
    """The resource version is no longer in the server's history."""

    reason = "gone"


class ForbiddenError(ApiError):
    """Not allowed: missing rights, a refused token, or an admission policy."""

    reason = "forbidden"


class RejectedError(ApiError):
    """The server does not accept the request as it is."""

    reason = "rejected"


class UnavailableError(ApiError):
    """The server cannot answer now; ``retry_after_seconds`` is what it asked for."""

    reason = "unavailable"

    def __init__(
        self, operation: str, status: int, detail: str, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(operation, status, detail)
        self.retry_after_seconds = retry_after_seconds


_BY_STATUS: dict[int, type[ApiError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
}
_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


def api_error(
    operation: str, status: int, detail: str, retry_after_seconds: float | None = None
) -> ApiError:
    """Return the typed error for an HTTP status."""
    if status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR or status == 0:
        return UnavailableError(operation, status, detail, retry_after_seconds)
    return _BY_STATUS.get(status, RejectedError)(operation, status, detail)
