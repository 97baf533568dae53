"""The lock of Debian packages: format, and what happens when a pin is gone."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.debian import DebianError, file_name
from images import debianbase, lock, toolchain
from images.lock import LockError, Pin, Pinned, difference, parse, render, version_of

LOCK = Path(__file__).resolve().parents[3] / "images" / "base.lock"
NAMES = st.text("abz09+.-", max_size=8).map("p".__add__)
VERSIONS = st.text("09az:.+~-", max_size=8).map("1".__add__)
PINS = st.builds(Pin, version=VERSIONS, sha256=st.binary(min_size=32, max_size=32).map(bytes.hex))


class Mirror:
    """An archive that has some versions; each package's content is its version."""

    def __init__(self, folder: Path, **versions: str) -> None:
        self._folder = folder
        self.versions = versions
        self.updates = 0

    def update(self, *, max_age_seconds: float = 0.0) -> None:
        """Count the look-ups in the network."""
        self.updates += 1

    def fetch(self, packages: Sequence[str]) -> dict[str, Path]:
        """Deliver what is asked for in the version there is."""
        found = {}
        for package in packages:
            name, _, version = package.partition("=")
            if version not in ("", self.versions[name]):
                raise DebianError(f"no {package}")
            path = self._folder / file_name(name, self.versions[name], "amd64")
            path.write_text(self.versions[name])
            found[name] = path
        return found


@pytest.fixture
def mirror(tmp_path: Path) -> Mirror:
    return Mirror(tmp_path, libc6="2.41-1", zlib1g="1:1.3-1")


@pytest.fixture
def committed(tmp_path: Path, mirror: Mirror) -> Path:
    path = tmp_path / "base.lock"
    path.write_text(render({"base amd64": lock.resolve(["libc6", "zlib1g"], mirror)}))
    return path


def pinned(path: Path, mirror: Mirror, report: list[str]) -> Pinned:
    return Pinned(path, path.parent / "cache", packages=lambda _: mirror, report=report.append)


@given(
    st.dictionaries(st.sampled_from(["base arm64", "tools amd64"]), st.dictionaries(NAMES, PINS))
)
def test_what_is_written_is_read_back(value: dict[str, dict[str, Pin]]) -> None:
    """Rendering and parsing are inverse."""
    assert parse(render(value), source="lock") == value


@pytest.mark.parametrize("line", ["libc6 1 sha256:12", "libc6", "[unclosed", "libc6 1 md5:00"])
def test_a_bad_line_is_named(line: str) -> None:
    """The error tells file and line."""
    with pytest.raises(LockError, match="lock:2: expected"):
        parse(f"[base amd64]\n{line}\n", source="lock")


def test_versions_with_epochs_survive_file_names() -> None:
    """The colon of an epoch is escaped in file names."""
    assert version_of(Path(file_name("zlib1g", "1:1.3-1", "amd64"))) == "1:1.3-1"


def test_differences_read_as_sentences() -> None:
    """Changed, new and lost packages each take one line."""
    one, two = Pin(version="1", sha256="0" * 64), Pin(version="2", sha256="1" * 64)

    assert difference(
        "base", {"a": one, "b": one, "same": one}, {"a": two, "c": two, "same": one}
    ) == [
        "base: a: 1 -> 2",
        "base: b: 1 -> absent",
        "base: c: absent -> 2",
    ]


def test_pins_at_hand_are_taken(committed: Path, mirror: Mirror) -> None:
    """Nothing is updated or reported while the archive has what is pinned."""
    report: list[str] = []

    paths = pinned(committed, mirror, report).fetch("base amd64")

    assert {name: path.read_text() for name, path in paths.items()} == mirror.versions
    assert (mirror.updates, report) == (0, [])


def test_a_gone_pin_is_resolved_anew(committed: Path, mirror: Mirror) -> None:
    """The build goes on with what there is, and says what changed."""
    mirror.versions["libc6"] = "2.41-2"
    report: list[str] = []
    subject = pinned(committed, mirror, report)

    paths = subject.fetch("base amd64")

    assert paths["libc6"].read_text() == "2.41-2"
    assert report[-1] == "base amd64: libc6: 2.41-1 -> 2.41-2"
    assert subject.deviation("base amd64") == ["base amd64: libc6: 2.41-1 -> 2.41-2"]


def test_a_deviation_is_remembered(committed: Path, mirror: Mirror) -> None:
    """The next build from the same lock takes the same packages without asking again."""
    mirror.versions["libc6"] = "2.41-2"
    pinned(committed, mirror, []).fetch("base amd64")
    report: list[str] = []
    later = pinned(committed, mirror, report)

    assert later.pins("base amd64")["libc6"].version == "2.41-2"
    later.fetch("base amd64")
    assert (mirror.updates, report) == (1, [])


def test_a_new_lock_forgets_deviations(committed: Path, mirror: Mirror) -> None:
    """What was remembered belongs to one content of the lock."""
    mirror.versions["libc6"] = "2.41-2"
    pinned(committed, mirror, []).fetch("base amd64")
    committed.write_text(committed.read_text() + "\n# renewed\n")

    assert pinned(committed, mirror, []).deviation("base amd64") == []


def test_another_content_of_a_pinned_version_is_refused(committed: Path, mirror: Mirror) -> None:
    """The same version with other bytes is an attack or an accident, never an update."""
    pins = parse(committed.read_text(), source="lock")["base amd64"]
    pins["libc6"] = Pin(version=pins["libc6"].version, sha256="0" * 64)
    committed.write_text(render({"base amd64": pins}))

    with pytest.raises(LockError, match="not the file that the lock pins as libc6"):
        pinned(committed, mirror, []).fetch("base amd64")


def test_the_shipped_lock_is_complete() -> None:
    """Every package of base and tools is pinned for both architectures."""
    shipped = parse(LOCK.read_text(), source=str(LOCK))

    assert {section: set(pins) for section, pins in shipped.items()} == {
        "base amd64": set(debianbase.PACKAGES),
        "base arm64": set(debianbase.PACKAGES),
        "tools amd64": set(toolchain.PACKAGES),
        "tools arm64": set(toolchain.PACKAGES),
    }
