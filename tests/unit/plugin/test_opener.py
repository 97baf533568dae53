"""Opening for real: what the child's words mean, and that its end is waited for no longer."""

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from npu.host import Host
from plugin.health import GOOD
from plugin.opener import Child, Opener, Outcome, judge
from tests.unit.plugin.boards import drm_npu

CARD = "/host/dev/dri/card0"
LIBRARY = "/host/usr/lib/librknnrt.so"


@pytest.mark.parametrize(
    ("said", "status", "verdict", "reason"),
    [
        (((CARD, None), (LIBRARY, ""), (LIBRARY, None)), 0, "good", "ok"),
        (((CARD, errno.ENODEV),), 0, "bad", "open_failed"),
        (((CARD, errno.EPERM),), 0, "unknown", "unmeasured"),
        (((CARD, errno.EBUSY),), 0, "unknown", "unmeasured"),
        (((CARD, errno.EPERM), ("/host/dev/dri/x", errno.ENXIO)), 0, "bad", "open_failed"),
        ((), None, "bad", "open_timeout"),
        (((CARD, None), (LIBRARY, "")), None, "bad", "library_unusable"),
        (((CARD, None), (LIBRARY, "")), -11, "bad", "library_unusable"),
        (((LIBRARY, ""), (LIBRARY, "invalid ELF header")), 0, "bad", "library_unusable"),
        (
            ((LIBRARY, "libgomp.so.1: cannot open shared object file: No such file"),),
            0,
            "unknown",
            "unmeasured",
        ),
    ],
)
def test_words_of_the_child(
    said: tuple[tuple[str, int | str | None], ...], status: int | None, verdict: str, reason: str
) -> None:
    """Only the driver's own refusal, a silence and a useless library are evidence."""
    found = judge(Outcome(said=said, status=status))

    assert (found.verdict, found.reason) == (verdict, reason)


def test_only_what_is_asked_for_is_touched(tmp_path: Path) -> None:
    """Without a request nothing is started; paths are those of this process."""
    runs: list[tuple[list[str], list[str]]] = []

    def run(nodes: Sequence[str], libraries: Sequence[str]) -> Outcome:
        runs.append((list(nodes), list(libraries)))
        return Outcome(said=(), status=0)

    host = Host(tmp_path)
    assert Opener(host, open_nodes=False, load_libraries=False, run=run).check(drm_npu()) == GOOD
    assert runs == []
    Opener(host, open_nodes=True, load_libraries=False, run=run).check(drm_npu())
    Opener(host, open_nodes=False, load_libraries=True, run=run).check(drm_npu())

    assert runs == [
        ([f"{tmp_path}/dev/dri/card0", f"{tmp_path}/dev/dri/renderD128"], []),
        ([], [f"{tmp_path}/usr/lib/librknnrt.so"]),
    ]


def test_child_tells_what_opens_and_what_loads(tmp_path: Path) -> None:
    """A device, a file that is not there, and a library that is none."""
    rubbish = tmp_path / "librubbish.so"
    rubbish.write_bytes(b"\x7fELF nonsense")

    outcome = Child().run(["/dev/null", str(tmp_path / "gone")], [str(rubbish)])

    assert outcome.status == 0
    assert outcome.said[:3] == (
        ("/dev/null", None),
        (str(tmp_path / "gone"), errno.ENOENT),
        (str(rubbish), ""),
    )
    assert judge(outcome).reason == "library_unusable"


def test_child_that_does_not_come_back(tmp_path: Path) -> None:
    """It is ended, and another one is tried only after it has gone."""
    child = Child(timeout_seconds=0.0)

    assert child.run(["/dev/null"], []).status is None
    assert judge(child.run([], [])).reason == "open_timeout"
