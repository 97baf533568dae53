"""The documentation as a site: every page is in it, and nothing is loaded from elsewhere."""

import re
from pathlib import Path

import pytest

from ci import site


@pytest.mark.timeout(600)
def test_site_is_built_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """The tool is strict; scripts, styles and pictures are the site's own."""
    site.build(tmp_path)
    pages = {str(page.relative_to(tmp_path)) for page in tmp_path.rglob("*.html")}
    assert {"index.html", "docs/troubleshooting/index.html", "docs/index.html"} <= pages
    assert any(name.startswith("docs/runbooks/NpuPluginDown") for name in pages)
    text = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|<link[^>]*href)="https?://[^"]*"', text)
    assert (tmp_path / "docs/images/overview.svg").is_file()
