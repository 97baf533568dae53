"""The API server as the rest of the guard sees it; ``thermal.kube`` is the real one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from thermal.objects import Json

MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"

NODES: Final = "/api/v1/nodes"

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A complete list, or a page of it, and the version to watch from."""

    items: tuple[Json, ...]
    resource_version: str


class Watching(Protocol):
    """An open watch."""

    def stop(self) -> None:
        """End the watch from another thread; a blocked read returns."""
        ...

    def events(self) -> Iterator[Json]:
        """Yield events until the server ends the watch or it is stopped; raises ApiError."""
        ...


class Api(Protocol):
    """Reading, writing and following objects. Every call raises ApiError."""

    def get(self, path: str) -> Json:
        """Read an object."""
        ...

    def list(self, path: str, query: Query | None = None) -> Listing:
        """Read a whole collection."""
        ...

    def pages(self, path: str, query: Query | None = None) -> Iterator[Listing]:
        """Read a collection page by page, for who need not have all of it at once."""
        ...

    def create(self, path: str, body: Json) -> Json:
        """Create an object in the collection ``path``."""
        ...

    def patch(
        self, path: str, body: Json, *, kind: str = MERGE_PATCH, dry_run: bool = False
    ) -> Json:
        """Patch an object and return it; a dry run is judged by admission and not stored."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object."""
        ...

    def watch(
        self, path: str, resource_version: str, *, seconds: int, query: Query | None = None
    ) -> Watching:
        """Open a watch that the server ends after ``seconds``."""
        ...
