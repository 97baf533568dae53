"""Content codings as RFC 9110 has them."""

import pytest

from daemon.encoding import accepts_gzip


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("gzip", True),
        ("GZIP, deflate", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip; q=1.0, identity; q=0.5", True),
        ("*", True),
        ("x-gzip", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=0.2, identity", False),
        ("gzip;q=much", False),
        ("gzipped", False),
    ],
)
def test_gzip_is_sent_to_those_who_take_it(header: str, *, accepted: bool) -> None:
    """Weights count, and a weight of zero is a refusal."""
    assert accepts_gzip(header) is accepted
