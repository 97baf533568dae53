"""The chart as it is released: one version everywhere, the same file twice."""

import tarfile
from pathlib import Path

import pytest
import yaml

from ci import chart, release
from ci.chart import CHART
from daemon.version import VERSION

CHANGELOG = """\
# Changelog

## Unreleased

* New: something that
  goes on.

## 1.2.3 - 2026-01-02

First.

* One.
* Two
  lines.
"""
REFERENCES = ["r.example/npu/plugin:1.2.3", "r.example/npu/guard:1.2.3"]


def test_notes_come_from_the_changelog() -> None:
    """A release has a section of its own; a pre-release takes what is not yet released."""
    text = release.notes(CHANGELOG, "1.2.3")
    assert text.startswith("First.")
    assert release.changes(text) == [
        {"kind": "added", "description": "One."},
        {"kind": "added", "description": "Two lines."},
    ]
    assert "something" in release.notes(CHANGELOG, "2.0.0-rc.1")
    with pytest.raises(release.ReleaseError, match=r"2\.0\.0"):
        release.notes(CHANGELOG, "2.0.0")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3+1", "01.2.3", "1.2.3-", ""])
def test_what_is_no_version_is_refused(version: str, tmp_path: Path) -> None:
    """Before anything is built."""
    with pytest.raises(release.ReleaseError, match="no version"):
        release.release(version, tmp_path / "out")


def test_the_package_is_stamped_and_the_same_twice(tmp_path: Path) -> None:
    """Version, appVersion, images and changes are in it; what is for development is not."""
    packages = []
    for name in ("one", "two"):
        out = tmp_path / name
        out.mkdir()
        packages.append(release.package("1.2.3-rc.1", REFERENCES, "* One.\n", out))
    assert packages[0].read_bytes() == packages[1].read_bytes()

    with tarfile.open(packages[0]) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    data = yaml.safe_load((tmp_path / "npu-platform" / "Chart.yaml").read_text())
    assert (data["version"], data["appVersion"]) == ("1.2.3-rc.1", "1.2.3-rc.1")
    notes = data["annotations"]
    assert yaml.safe_load(notes["artifacthub.io/images"])[0] == {
        "name": "plugin",
        "image": "r.example/npu/plugin:1.2.3",
    }
    assert yaml.safe_load(notes["artifacthub.io/changes"])[0]["description"] == "One."
    assert notes["artifacthub.io/prerelease"] == "true"
    assert not [name for name in names if "/ci/" in name or "/tests/" in name.split("templates")[0]]
    text = chart.render(chart=tmp_path / "npu-platform")
    assert "localhost/npu-platform/plugin:1.2.3-rc.1" in text


def test_programs_and_chart_have_one_version() -> None:
    """What is in the checkout is one version, whoever is asked."""
    data = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert data["version"] == data["appVersion"] == VERSION
