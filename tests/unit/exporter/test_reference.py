"""The metrics page is generated and complete."""

from pathlib import Path

import pytest

from exporter import reference
from exporter.catalogue import CATALOGUE


def test_page_is_up_to_date() -> None:
    """What is committed is what the catalogue says."""
    assert reference.main(["--check"]) == 0


def test_page_lists_every_metric_once() -> None:
    """No metric is undocumented."""
    text = reference.page()
    assert all(text.count(f"| `{name}` |") == 1 for name in CATALOGUE)


def test_difference_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was changed by hand, or is missing, fails the check."""
    monkeypatch.setattr(reference, "PAGE", tmp_path / "metrics.md")
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert reference.main(["--check"]) == 0
    (tmp_path / "metrics.md").write_text("changed")
    assert reference.main(["--check"]) == 1
