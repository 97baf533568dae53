"""The table of npu-smi is read by its header, whatever its version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu.catalogue import Chips
from npu.drivers.ascend_smi import ChipReading, Memory, attribute, parse
from npu.model import Npu
from npu.smi_table import ChipState, render

MB = 1 << 20
OLD = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.rc3          Version: 23.0.rc2.3                                      |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 5     910A                | OK            | 73.4        44                1123 / 1123          |
| 0                         | 0000:C1:00.0  | 7           4565 / 15137      30710/ 32768         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| 5       0                 | 139667        | python                   | 30780                   |
+===========================+===============+====================================================+
"""
TWO_CHIPS = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 178.8       36                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3397 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | Alarm         | -           38                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 12          0    / 0          3186 / 65536         |
"""
NO_HBM = """\
| NPU     Name            | Health        | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device          | Bus-Id        | AICore(%)    Memory-Usage(MB)                        |
| 32      310P3           | OK            | NA           45                0     / 0             |
| 0       1               | 0000:01:00.0  | 0            1529 / 44280                            |
"""


def npu(number: int, unit: str = "") -> Npu:
    return Npu(
        id=f"davinci{number}",
        vendor="huawei",
        model="ascend910",
        driver="ascend",
        mode="davinci",
        unit=unit or f"davinci{number}",
    )


def test_single_chip_cards_of_an_old_version() -> None:
    """Values by column; the table of processes is none of chips."""
    assert parse(OLD) == (
        ChipReading(
            npu_id=5,
            chip_id=0,
            name="910A",
            health="ok",
            bus_id="0000:C1:00.0",
            watts=73.4,
            celsius=44,
            percent=7,
            memory=Memory(used_bytes=4565 * MB, size_bytes=15137 * MB),
            hbm=Memory(used_bytes=30710 * MB, size_bytes=32768 * MB),
        ),
    )


def test_two_chips_of_a_card() -> None:
    """Power is the first chip's alone; a memory of size 0 is none."""
    first, second = parse(TWO_CHIPS)
    assert (first.device, first.watts, first.memory) == (0, 178.8, None)
    assert (second.device, second.watts, second.celsius) == (1, None, 38)
    assert (second.health, second.percent) == ("alarm", 12)


def test_card_without_hbm_and_with_a_large_number() -> None:
    """The number of the node is the device column, not the number of the card."""
    (chip,) = parse(NO_HBM)
    assert (chip.npu_id, chip.device, chip.watts, chip.hbm) == (32, 1, None, None)
    assert chip.memory == Memory(used_bytes=1529 * MB, size_bytes=44280 * MB)


def test_names_that_look_like_numbers() -> None:
    """A 310 calls itself so."""
    (chip,) = parse(NO_HBM.replace("310P3", "310  "))
    assert (chip.name, chip.device) == ("310", 1)


def test_wider_cells_and_odd_health() -> None:
    """Columns are found by bars; health that is not known is unknown."""
    text = OLD.replace("| OK            |", "| General Alarm of the board |").replace(
        " | ", "   |   "
    )
    (chip,) = parse(text)
    assert (chip.health, chip.celsius) == ("unknown", 44)


@pytest.mark.parametrize("sentinel", ["-275", "-", "NA", "200", "4294967295", "4x"])
def test_sentinels_are_absent(sentinel: str) -> None:
    """No sample is None, never a number."""
    (chip,) = parse(OLD.replace("        44     ", f"        {sentinel}     "))
    assert chip.celsius is None
    assert chip.watts == 73.4


def test_controller_is_no_chip() -> None:
    """Its temperature is higher and not the chip's."""
    extra = "| 5     MCU                 | OK            | 10.0        91                0 / 0 |\n"
    lower = "| 1                         | NA            | -           0 / 0             0 / 0 |\n"
    lines = OLD.splitlines(keepends=True)
    assert parse("".join([*lines[:8], extra, lower, *lines[8:]])) == parse(OLD)


def test_cut_table_keeps_whole_chips() -> None:
    """An upper row without its lower one is no chip."""
    assert len(parse(TWO_CHIPS[: TWO_CHIPS.rindex("| 1 ")])) == 1


@given(st.text(max_size=400), st.integers(min_value=0, max_value=len(TWO_CHIPS)))
def test_garbage_never_raises(garbage: str, at: int) -> None:
    """Whatever stands in the table, values are within their ranges or absent."""
    for text in (garbage, TWO_CHIPS[:at] + garbage + TWO_CHIPS[at:], OLD[:at] + garbage):
        for chip in parse(text):
            assert chip.celsius is None or -40 <= chip.celsius <= 150
            assert chip.percent is None or 0 <= chip.percent <= 1000
            for memory in (chip.memory, chip.hbm):
                assert memory is None or 0 <= memory.used_bytes <= memory.size_bytes


def test_chips_are_attributed_by_node_then_bus_then_card() -> None:
    """Each rule where the one before has nothing to go by."""
    chips, lost = attribute(parse(TWO_CHIPS), [npu(0), npu(1)])
    assert ({name: chip.chip_id for name, chip in chips.items()}, lost) == (
        {"davinci0": 0, "davinci1": 1},
        0,
    )
    chips, lost = attribute(parse(OLD), [npu(2, "0000:c1:00.0"), npu(5)])
    assert (list(chips), lost) == (["davinci2"], 0)
    chips, lost = attribute(parse(OLD), [npu(5)])
    assert (list(chips), lost) == (["davinci5"], 0)


def test_what_belongs_to_no_device_or_twice_is_counted() -> None:
    """A reading is somebody's or nobody's, never a guess."""
    assert attribute(parse(OLD), [npu(0)]) == ({}, 1)
    assert attribute([*parse(NO_HBM), *parse(NO_HBM)], [npu(1)]) == ({}, 1)


@given(
    st.lists(
        st.builds(
            ChipState,
            celsius=st.floats(min_value=-30, max_value=120),
            percent=st.integers(min_value=0, max_value=100),
        ),
        min_size=1,
        max_size=16,
    ),
    st.sampled_from([0, 32768]),
    st.sampled_from([1, 2, 4]),
)
def test_simulated_table_is_read_back(states: list[ChipState], hbm: int, per_card: int) -> None:
    """What a simulated board prints is what the parser reads."""
    chips = Chips(
        name="910B4",
        version="25.5.1",
        memory_megabytes=1000,
        idle_watts=80,
        busy_watts=300,
        hbm_megabytes=hbm,
        per_card=per_card,
    )
    readings = parse(render(chips, states).decode())
    assert [(chip.device, chip.percent) for chip in readings] == [
        (number, state.percent) for number, state in enumerate(states)
    ]
    assert [chip.celsius for chip in readings] == [round(state.celsius) for state in states]
    assert all((chip.hbm is not None) == bool(hbm) for chip in readings)
