"""Links inside the documentation lead somewhere, and the site shows every page."""

from pathlib import Path

import pytest
import yaml

from tests.unit.docs.pages import ROOT, anchors, links, pages

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_inside_the_repository(page: Path) -> None:
    """The file is there, and so is the heading."""
    dead = []
    for link in links(page):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target)
        ):
            dead.append(link)
    assert not dead


def test_site_has_every_page() -> None:
    """A page that no menu names is found by nobody; the runbooks are linked from the alerts."""

    def named(entry: object) -> set[str]:
        if isinstance(entry, dict):
            return {name for value in entry.values() for name in named(value)}
        if isinstance(entry, list):
            return {name for value in entry for name in named(value)}
        return {str(entry)}

    menu = named(yaml.safe_load((ROOT / "ci/mkdocs.yaml").read_text())["nav"])
    shown = {str(page.relative_to(ROOT)) for page in PAGES}
    assert menu <= shown
    missing = {name for name in shown - menu if not name.startswith("docs/runbooks/")}
    assert not missing
