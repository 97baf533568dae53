"""Trees are exchanged as a whole and removed without a trace."""

import errno
import os
import threading
from pathlib import Path

import pytest

from npu import catalogue
from npu.host import Host
from npu.layout import expand
from npu.scan import scan
from simulator.generations import Generations


def _install(directory: Path, name: str, *, device_nodes: bool = False) -> bool:
    tree = expand(catalogue.load(name))
    return Generations(directory).install(name, tree, device_nodes=device_nodes)


def test_the_same_board_is_kept_with_what_it_shows(tmp_path: Path) -> None:
    """A restart of the simulator is not a restart of the board."""
    assert _install(tmp_path, "rk3588")
    load = tmp_path / "sys/kernel/debug/rknpu/load"
    load.write_text("NPU load:  Core0: 90%, Core1: 90%, Core2: 90%,\n")
    assert not _install(tmp_path, "rk3588")
    assert "90%" in load.read_text()


def test_another_board_replaces_everything(tmp_path: Path) -> None:
    """Nothing of the old board is left, neither files nor links nor space."""
    _install(tmp_path, "rk3588")
    assert _install(tmp_path, "rv1106")
    (npu,) = scan(Host(tmp_path)).npus
    assert npu.model == "rv1106"
    assert not os.path.lexists(tmp_path / "usr")
    assert len(list((tmp_path / ".trees").iterdir())) == 1


def test_readers_never_see_two_boards_in_one(tmp_path: Path) -> None:
    """Under exchange, board name and NPU unit of one directory always belong together."""
    _install(tmp_path, "rk3588")
    seen: set[tuple[str, str]] = set()
    failures: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            base = os.open(tmp_path / "sys", os.O_RDONLY | os.O_DIRECTORY)
            try:
                model = os.open("firmware/devicetree/base/model", os.O_RDONLY, dir_fd=base)
                text = os.read(model, 100).decode()
                os.close(model)
                bound = Path(f"/proc/self/fd/{base}/bus/platform/drivers/RKNPU")
                seen.update((text, path.name) for path in bound.iterdir())
            except FileNotFoundError:
                # The tree was removed while held open: a reader sees "gone", never "mixed".
                continue
            except BaseException as error:  # noqa: BLE001 (reported by the test)
                failures.append(error)
                return
            finally:
                os.close(base)

    reader = threading.Thread(target=read)
    reader.start()
    for index in range(20):
        _install(tmp_path, ("rk3576", "rk3588")[index % 2])
    stop.set()
    reader.join()
    assert failures == []
    assert seen <= {
        ("Radxa ROCK 5B\0", "fdab0000.npu"),
        ("Radxa ROCK 4D\0", "27700000.npu"),
    }
    assert seen


def test_removing_leaves_an_empty_directory(tmp_path: Path) -> None:
    """The directory stays, because others have it mounted; removing twice is fine."""
    _install(tmp_path, "rk3588")
    generations = Generations(tmp_path)
    assert generations.remove()
    assert list(tmp_path.iterdir()) == []
    assert not generations.remove()
    assert not Generations(tmp_path / "absent").remove()


def test_links_of_somebody_else_stay(tmp_path: Path) -> None:
    """Only what leads through the simulator's own link is its own."""
    (tmp_path / "mine").symlink_to("elsewhere")
    _install(tmp_path, "rk3588")
    Generations(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_without_capability_nodes_are_empty_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The board is still found; whoever asks learns that its nodes are no devices."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refuse)
    generations = Generations(tmp_path)
    assert generations.install("rk3588", expand(catalogue.load("rk3588")), device_nodes=True)
    assert not generations.device_nodes
    assert Host(tmp_path).device_number("/dev/dri/card1") is None
    assert len(scan(Host(tmp_path)).npus) == 1


def test_an_unfinished_tree_is_written_again(tmp_path: Path) -> None:
    """A simulator that was killed while writing leaves nothing that matters."""
    _install(tmp_path, "rk3588")
    name = (tmp_path / ".current").readlink().name
    Generations(tmp_path).remove()
    (tmp_path / ".trees" / name / "sys").mkdir(parents=True)
    assert _install(tmp_path, "rk3588")
    assert len(scan(Host(tmp_path)).npus) == 1


def test_a_tree_somebody_emptied_is_written_again(tmp_path: Path) -> None:
    """The marker is looked for, so a lost tree comes back."""
    _install(tmp_path, "rk3588")
    (tmp_path / ".current/simulated").unlink()
    assert _install(tmp_path, "rk3588")
