"""The documentation as a site: all of it, readable, and nothing is loaded from elsewhere."""

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci import site
from ci.browser import Browser, Page

pytestmark = pytest.mark.timeout(600)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return folder


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    """Where the site is served."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Quiet, directory=str(built))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """A browser."""
    with Browser() as tab:
        yield tab


def test_site_is_built_and_loads_nothing_from_elsewhere(built: Path) -> None:
    """The tool is strict; scripts, styles and pictures are the site's own."""
    pages = {str(page.relative_to(built)) for page in built.rglob("*.html")}
    assert {"index.html", "docs/troubleshooting/index.html", "docs/index.html"} <= pages
    assert any(name.startswith("docs/runbooks/NpuPluginDown") for name in pages)
    text = (built / "index.html").read_text()
    assert not re.findall(r'(?:src|<link[^>]*href)="https?://[^"]*"', text)
    assert (built / "docs/images/overview.svg").is_file()


def test_no_page_is_wider_than_a_phone(built: Path, address: str, page: Page) -> None:
    """Tables and commands scroll by themselves, or break; the runbooks are short and alike."""
    wide = set()
    for file in built.rglob("index.html"):
        name = str(file.parent.relative_to(built))
        if "runbooks" not in name:
            page.open(f"{address}{'' if name == '.' else name + '/'}", width=390)
            if page.overflows():
                wide.add(name)
    assert not wide


def test_text_has_contrast(address: str, page: Page) -> None:
    """Also in commands and manifests, by day and by night."""
    for dark in (False, True):
        page.open(f"{address}docs/workloads/", width=1280, dark=dark)
        assert [line for line in page.complaints() if line.startswith("color-contrast")] == []
