"""Which content codings a client takes (RFC 9110, section 12.5.3). Pure."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Tell whether a client that sent this header takes gzip, and not rather the plain text."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        weights[coding] = _weight(parameters)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0.0 and gzip >= weights.get("identity", 0.0)


def _weight(parameters: list[str]) -> float:
    """Return the ``q`` of a coding, 1 without one, 0 for one that is no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
