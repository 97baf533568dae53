"""What Helm says after an installation: lines to copy that work, and nothing that is not so."""

import re

import pytest

from ci import chart
from tests.unit.docs.test_commands import row

DRA = "plugin.mode=dra"
VARIANTS = [
    (),
    ("guard.mode=observe", "monitoring.enabled=true", "monitoring.skipApiCheck=true"),
    ("guard.taint=PreferNoSchedule", "tests.enabled=false", "cleanup.enabled=false"),
    ("exporter.ascendTelemetry.enabled=true", "plugin.health.openDevice=true"),
    ("plugin.heat.clampFrequency=true", "plugin.sharing.slots=cores", "guard.enabled=false"),
    ("simulator.enabled=true", "criticalPodsQuota.enabled=true"),
]


def commands(text: str) -> list[str]:
    """Return the lines that are meant to be copied."""
    return re.findall(r"^ {2}((?:kubectl|helm) .*)$", text, re.MULTILINE)


@pytest.mark.parametrize("settings", [*VARIANTS, (DRA,)])
def test_every_command_has_a_row(settings: tuple[str, ...]) -> None:
    """As in the documentation: some test runs it, or it is said why none does."""
    found = commands(chart.notes(*settings))
    assert found
    assert [command for command in found if row(command) is None] == []


@pytest.mark.parametrize("settings", VARIANTS)
def test_text_fits_a_terminal(settings: tuple[str, ...]) -> None:
    """Sentences do; commands may be longer."""
    lines = chart.notes(*settings).splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith("  ")] == []


def columns(command: str) -> list[str]:
    """Return the headings of a command with columns."""
    (listed,) = re.findall(r"custom-columns='([^']*)'", command)
    return [column.partition(":")[0] for column in listed.split(",")]


def test_offers_of_boards_and_of_cards_are_asked_for_apart() -> None:
    """The boards' line is short, and no heading is there twice in one table."""
    offers = [c for c in commands(chart.notes()) if "allocatable" in c]
    assert [columns(command) for command in offers] == [
        ["NODE", "NPU", "NPU-ROCKET"],
        ["NODE", "ASCEND310", "ASCEND310P", "ASCEND910", "NPU"],
    ]


def test_names_of_your_own_are_told_apart() -> None:
    """Two resources that end alike get their whole names as headings."""
    (offer, _) = (
        c
        for c in commands(chart.notes("plugin.resourceNames.rk3576=example.com/npu"))
        if "alloc" in c
    )
    assert columns(offer) == ["NODE", "EXAMPLE.COM/NPU", "ROCKCHIP.COM/NPU", "NPU-ROCKET"]
    assert r".status.allocatable.example\.com/npu" in offer


def test_mode_dra_is_not_told_of_taints_of_nodes_only() -> None:
    """Slices to look at, rules instead of taints, and both to remove by hand."""
    text = chart.notes(DRA)
    assert "heat taints the NPUs, never the Node" in text
    assert "kubectl delete devicetaintrules,resourceslices -l npu-platform.io/published-by=" in text
    assert "devicetaintrules" not in chart.notes()


def test_what_is_done_is_not_offered() -> None:
    """A hint ends with what it asks for."""
    assert "criticalPodsQuota.enabled=true" in chart.notes()
    assert "insufficient quota" not in chart.notes("criticalPodsQuota.enabled=true")
    assert "Those with an NPU are evicted in the state emergency" in chart.notes()
    assert "are evicted" not in chart.notes("guard.eviction.enabled=false")


def test_the_shares_that_are_left_are_told() -> None:
    """A file with one team takes the others' shares away: Helm replaces lists."""
    text = chart.notes(
        "quotas[0].namespace=team-a",
        r"quotas[0].hard.requests\.rockchip\.com/npu=2",
        "quotas[1].namespace=team-b",
        "quotas[1].name=batch",
        "quotas[1].hard.pods=9",
    )
    assert "  team-a: requests.rockchip.com/npu=2\n  team-b (batch): pods=9\n" in text
    assert "Shares of teams" not in chart.notes()


def test_great_numbers_of_a_file_are_told_as_they_are_counted() -> None:
    """Helm reads them as floating point: a million Jobs are no 1e+06 of them."""
    hard = {"count/jobs.batch": 1000000, "requests.cpu": 2.5}
    text = chart.notes(values={"quotas": [{"namespace": "team-a", "hard": hard}]})
    assert "  team-a: count/jobs.batch=1000000, requests.cpu=2.5\n" in text
