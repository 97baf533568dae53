"""How apt is confined and its answers are read."""

import re
from pathlib import Path

import pytest

from ci import debian, sources
from ci.debian import Archive

POLICY = """\
containerd:
  Installed: (none)
  Candidate: 1.6.20~ds1-1+deb12u3
  Version table:
     1.6.20~ds1-1+deb12u3 500
        500 http://mirror.example/debian bookworm/main amd64 Packages
busybox-static:
  Installed: (none)
  Candidate: 1:1.35.0-4+b7
  Version table:
virtual:
  Installed: (none)
  Candidate: (none)
  Version table:
"""


def test_policy_names_candidates() -> None:
    """Versions keep their epoch; a name without a candidate is absent."""
    assert debian.parse_policy(POLICY) == {
        "containerd": "1.6.20~ds1-1+deb12u3",
        "busybox-static": "1:1.35.0-4+b7",
    }


def test_configuration_keeps_apt_inside_its_folder() -> None:
    """Every path apt writes to lies below the folder; hooks and pins of the host are dropped."""
    home = Path("/cache/debian/trixie-arm64")
    text = debian.apt_configuration(home, home / "debian.sources", "arm64")
    paths = re.findall(r'^Dir::\S+ "([^"]*)";$', text, flags=re.MULTILINE)
    assert all(path == "/dev/null" or Path(path).is_relative_to(home) for path in paths)
    assert "#clear APT::Update::Post-Invoke;" in text
    assert 'APT::Architectures { "arm64"; };' in text


def test_a_pinned_version_at_hand_needs_no_apt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that was fetched before is returned without asking the archive."""
    monkeypatch.setenv("PATH", "")
    store = tmp_path / "debian" / "packages"
    store.mkdir(parents=True)
    mine = store / "tool_1%3a2.0-1_arm64.deb"
    every = store / "data_3.0-1_all.deb"
    mine.touch()
    every.touch()
    fetched = Archive("trixie", "arm64", tmp_path).fetch(["tool=1:2.0-1", "data=3.0-1"])
    assert fetched == {"tool": mine, "data": every}


def test_changed_sources_make_lists_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the host's mirror changes, lists of the old one are not trusted."""
    entries = sources.parse_one_line("deb http://a.example/debian bookworm main")
    monkeypatch.setattr(sources, "host_entries", lambda: entries)
    monkeypatch.setattr(sources, "host_keyring", lambda: Path("/k.gpg"))
    archive = Archive("bookworm", "amd64", tmp_path)
    archive._prepare()
    stamp = tmp_path / "debian" / "bookworm-amd64" / "updated"
    stamp.touch()
    archive._prepare()
    assert stamp.exists()
    entries[:] = sources.parse_one_line("deb http://b.example/debian bookworm main")
    archive._prepare()
    assert not stamp.exists()
