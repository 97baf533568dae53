"""Certificates that are renewed, well or badly."""

import errno
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext

import pytest

from daemon.tls import RETRY_SECONDS, Renewing


class _Files:
    """A file, and the contexts that are made of it; ``error`` is what making one raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: OSError | None = None
        self.made: list[SSLContext] = []

    @property
    def files(self) -> tuple[str, ...]:
        return (str(self.path),)

    def context(self) -> SSLContext:
        if self.error is not None:
            raise self.error
        self.made.append(SSLContext(PROTOCOL_TLS_SERVER))
        return self.made[-1]


@pytest.fixture
def files(tmp_path: Path) -> _Files:
    """A certificate."""
    (tmp_path / "tls.crt").write_text("first")
    return _Files(tmp_path / "tls.crt")


def test_a_renewed_certificate_is_used_at_once(files: _Files) -> None:
    """Kubelets turn a link, cert-manager writes another Secret: the file is another one then."""
    renewing = Renewing(files)
    assert renewing.current() is files.made[0]
    new = files.path.with_name("new")
    new.write_text("second")
    new.replace(files.path)
    assert renewing.current() is files.made[1]
    assert renewing.current() is files.made[1]


def test_what_could_not_be_read_is_read_again(
    files: _Files, caplog: pytest.LogCaptureFixture
) -> None:
    """A lack of descriptors leaves no trace in the file, and the old certificate ends one day."""
    now = 0.0
    renewing = Renewing(files, monotonic=lambda: now)
    files.path.write_text("second and longer")
    files.error = OSError(errno.EMFILE, "Too many open files")
    for _ in range(3):
        assert renewing.current() is files.made[0]
    now += RETRY_SECONDS
    assert renewing.current() is files.made[0]
    files.error = None
    assert renewing.current() is files.made[0]
    now += RETRY_SECONDS
    assert renewing.current() is files.made[1]
    now += RETRY_SECONDS
    assert renewing.current() is files.made[1]
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "A renewed certificate cannot be used, the last one is"
    ]
