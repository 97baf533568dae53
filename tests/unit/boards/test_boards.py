"""Every board, from its files to what scan, kubelet, exporter and guard make of them.

One golden text per board: a change of a driver shows on which boards it matters. Boards that are
not ours and faults of boards have their expectation beside them.
"""

import difflib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from npu import catalogue, thermal
from npu.catalogue import Board
from npu.drivers.rocket import RocketDriver
from npu.errors import NpuError
from npu.host import Host
from npu.layout import expand
from npu.model import Npu
from npu.registry import DRIVERS
from npu.scan import driver_of, scan
from npu.tree import materialise
from tests.unit.boards.looking import TreeHost, account

GOLDEN = Path(__file__).parent / "golden"
FOREIGN = Path(__file__).parents[2] / "boards"
FAULTS = Path(__file__).parents[2] / "faults"
SWITCH = "UPDATE_GOLDEN"


def host_of(board: Board, root: Path, errors: Mapping[str, int] | None = None) -> Host:
    tree = expand(board)
    materialise(tree, root, device_nodes=False)
    return TreeHost(root, tree, errors or {})


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no time pass for drivers that compare two readings: machines are slow at times."""
    for driver in DRIVERS:
        if isinstance(driver, RocketDriver):
            monkeypatch.setattr(driver, "_monotonic", lambda: 1000.0)


@pytest.mark.usefixtures("still")
@pytest.mark.parametrize("name", catalogue.names())
def test_a_board_is_seen_alike_by_everybody(name: str, tmp_path: Path) -> None:
    """Scan, device list, Allocate, exposition and the guard's inputs are as reviewed."""
    text = account(host_of(catalogue.load(name), tmp_path))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get(SWITCH) == "1":
        golden.write_text(text)
    difference = "\n".join(
        difflib.unified_diff(golden.read_text().splitlines(), text.splitlines(), "golden", "now")
    )
    assert not difference, f"if this is meant, run with {SWITCH}=1\n{difference}"


@pytest.mark.parametrize("name", catalogue.names(FOREIGN))
def test_another_maker_s_board_is_a_node_without_npu(name: str, tmp_path: Path) -> None:
    """Names like Rockchip's, accel nodes and zones called npu are no evidence."""
    host = host_of(catalogue.load(name, FOREIGN), tmp_path)
    inventory = scan(host)
    assert (inventory.npus, inventory.refused) == ((), ())
    assert "nothing to offer" in account(host)


class Fault(NamedTuple):
    """A board with something wrong, and what must be said about it."""

    name: str
    board: Board
    errors: dict[str, int]
    expect: dict[str, object]


def faults() -> list[Fault]:
    found: list[Fault] = []
    for path in sorted(FAULTS.glob("*.yaml")):
        data = yaml.safe_load(path.read_text())
        errors = {place: getattr(errno, name) for place, name in data.pop("errors", {}).items()}
        expect = data.pop("expect")
        board = catalogue.from_data(path.stem, data, FAULTS)
        found.append(Fault(path.stem, board, errors, expect))
    return found


def observed(host: Host, npu: Npu) -> dict[str, object]:
    driver = driver_of(npu)
    result: dict[str, object] = {"cores": npu.cores, "driver_version": npu.driver_version}
    try:
        loads = driver.load(host, npu)
        result["load"] = [load.ratio for load in loads]
        result["clamped"] = sum(load.clamped for load in loads)
    except NpuError as error:
        result["load"] = type(error).__name__
    zone = next((zone for zone in thermal.zones(host) if zone.type == npu.zone), None)
    result["zone"] = npu.zone
    try:
        assert zone is not None
        result["millicelsius"] = thermal.millicelsius(host, zone)
    except NpuError as error:
        result["millicelsius"] = type(error).__name__
    result["clock_hertz"] = driver.clock(host, npu).current_hertz
    result["powered"] = driver.powered(host, npu)
    return result


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_fault_is_told_for_what_it_is(fault: Fault, tmp_path: Path) -> None:
    """What cannot be read is unknown with its kind of failure, never 0 and never something else."""
    host = host_of(fault.board, tmp_path, fault.errors)
    (npu,) = scan(host).npus
    seen = observed(host, npu)
    assert {key: seen[key] for key in fault.expect} == fault.expect
    assert "npu0" in account(host)
