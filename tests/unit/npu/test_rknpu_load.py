"""The parser of the vendor driver's load file: a wrong line is never a number."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from npu.drivers.rknpu_files import parse_load, parse_version
from npu.errors import ImplausibleError


@pytest.mark.parametrize(
    ("line", "ratios"),
    [
        ("NPU load:  Core0:  0%, Core1:  0%, Core2:  0%,\n", [0.0, 0.0, 0.0]),
        ("NPU load:  Core0: 100%, Core1:  7%, Core2: 42%,\n", [1.0, 0.07, 0.42]),
        ("NPU load:  Core0:  0%, Core1:  0%,\n", [0.0, 0.0]),
        ("NPU load:  0%\n", [0.0]),
        ("NPU load: 48%\n", [0.48]),
        ("NPU load: 100%\n", [1.0]),
        ("NPU load:  Core0:  21%, Core1:  11%, Core2:  0%,", [0.21, 0.11, 0.0]),
        ("NPU load: Core0: 99%, Core1: 99%, Core2: 42%", [0.99, 0.99, 0.42]),
    ],
)
def test_lines_of_real_drivers_are_understood(line: str, ratios: list[float]) -> None:
    """Every line that a driver writes, or that people copied from one, is read."""
    loads = parse_load(line)
    assert [load.ratio for load in loads] == ratios
    assert [load.core for load in loads] == list(range(len(ratios)))
    assert not any(load.clamped for load in loads)


@pytest.mark.parametrize(
    "line",
    [
        "NPU load: Core0: 99%, Core1: 99%, Core2: 429496%\n",
        "NPU load:  Core0: 99%, Core1: 99%, Core2: 429496%,\n",
        "NPU load: 20000%\n",
    ],
)
def test_overflow_of_old_drivers_is_clamped_and_marked(line: str) -> None:
    """More than 100 % is full load and counted as suspect."""
    last = parse_load(line)[-1]
    assert last.ratio == 1.0
    assert last.clamped


@pytest.mark.parametrize(
    "line",
    [
        "",
        "\n",
        "NPU load:\n",
        "NPU load:  Core0:   %, Core1:  0%,\n",
        "NPU load:  Core0:  0%, Core1:",
        "NPU load:  Core0:  0%, Cor",
        "NPU load:  Core0:  0%, Core1:  1",
        "NPU load:  Core1:  0%, Core0:  0%,\n",
        "NPU load:  Core0:  0%, Core0:  0%,\n",
        "NPU load:  Core1:  5%,\n",
        "NPU load: -1%\n",
        "NPU load: 4.5%\n",
        "NPU load: ٤٨%\n",
        "NPU load 20000%\n",
        "NPU0: 100%, NPU1: 98%, NPU2: 100%\n",
        "npu load: 48%\n",
        " NPU load: 48%\n",
        "NPU load: 48%\nNPU load: 48%\n",
        "NPU load:  Core0:  0%, Core1:  0%,\nNPU load: 1%\n",
        "100@1000000000Hz\n",
        "unavailable\n",
    ],
)
def test_other_lines_are_implausible(line: str) -> None:
    """Cut, blank, reordered and foreign lines raise; none becomes 0."""
    with pytest.raises(ImplausibleError, match="NPU load"):
        parse_load(line)


@given(st.one_of(st.text(max_size=200), st.text("NPU load:Core0123456789%, \n\0", max_size=200)))
@example("NPU load: 48%")
def test_any_text_is_ratios_or_implausible(text: str) -> None:
    """No text makes the parser fail in another way or leave the range 0 to 1."""
    try:
        loads = parse_load(text)
    except ImplausibleError:
        return
    assert loads
    assert all(0.0 <= load.ratio <= 1.0 for load in loads)
    assert [load.core for load in loads] == list(range(len(loads)))


@given(st.lists(st.integers(0, 429496), min_size=2, max_size=12))
def test_what_the_driver_prints_is_read_back(percents: list[int]) -> None:
    """The driver's own format with any values gives exactly these values."""
    line = (
        "NPU load: "
        + "".join(f" Core{core}: {value:2d}%," for core, value in enumerate(percents))
        + "\n"
    )
    loads = parse_load(line)
    assert [load.ratio for load in loads] == [min(value, 100) / 100 for value in percents]
    assert [load.clamped for load in loads] == [value > 100 for value in percents]


@given(st.lists(st.integers(0, 100), min_size=2, max_size=4), st.data())
def test_a_cut_line_never_shows_fewer_cores_by_accident(
    percents: list[int], data: st.DataObject
) -> None:
    """A line cut anywhere but after a complete core is refused."""
    line = "NPU load: " + "".join(f" Core{c}: {v:2d}%," for c, v in enumerate(percents))
    cut = line[: data.draw(st.integers(0, len(line) - 1))]
    if cut.endswith(("%", "%,", "%, ")):
        return
    with pytest.raises(ImplausibleError):
        parse_load(cut)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("RKNPU driver: v0.9.8\n", "0.9.8"),
        ("0.9.8\n", "0.9.8"),
        ("RKNPU driver: v0.10.12", "0.10.12"),
    ],
)
def test_version_is_three_numbers(text: str, version: str) -> None:
    """Both places write the version in their own words."""
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "v1.2\n", "RKNPU driver: v%d.%d.%d\n", "99999999.1.1"])
def test_a_text_without_version_is_implausible(text: str) -> None:
    """A version is never invented."""
    with pytest.raises(ImplausibleError):
        parse_version(text)
