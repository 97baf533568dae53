"""The guard's configuration file."""

import pytest

from daemon.config import ConfigError, parse
from thermal.config import Config


def test_an_empty_file_is_the_default() -> None:
    """Everything has a default; the default enforces with NoSchedule."""
    config = parse("", Config)

    assert (config.mode, config.effect, config.missing_data) == ("enforce", "NoSchedule", "hold")
    assert config.timing.hot_hold_seconds == 180


def test_the_chart_writes_camel_case() -> None:
    """Every block is reachable under the names of the chart."""
    config = parse(
        "{mode: observe, taint: none, includeControlPlane: true, missingData: failSafe,"
        " thresholds: {preset: rk3588, hotCelsius: 75, timing: {hotHoldSeconds: 240}},"
        " scrape: {intervalSeconds: 30, timeoutSeconds: 1}}",
        Config,
    )

    assert config.effect is None
    assert config.settings.resolve().hot_celsius == 75
    assert config.policy.lost_seconds == 120


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{mode: dry-run}", "mode"),
        ("{taint: NoExecute}", "taint"),
        ("{tiant: none}", "tiant"),
        ("{scrape: {intervalSeconds: 0}}", "intervalSeconds"),
        ("{scrape: {timeoutSeconds: .inf}}", "timeoutSeconds"),
        ("{thresholds: {warmCelsius: 90}}", "warmCelsius"),
        ("{forgetAfterSeconds: 30}", "forgetAfterSeconds"),
        ("{manualPauseSeconds: -1}", "manualPauseSeconds"),
        ("{budget: {nodesRatio: 0}}", "nodesRatio"),
        ("{budget: {domainRatio: 1.5}}", "domainRatio"),
        ("{storm: {rearmRatio: 0.3}}", "rearmRatio"),
        ("{storm: {minimumNodes: 0}}", "minimumNodes"),
        ("{eviction: {states: [hot]}}", "states"),
        ("{eviction: {intervalSeconds: 0}}", "intervalSeconds"),
        ("{eviction: {concurrentNodes: 0}}", "concurrentNodes"),
        ("{storm: {withinSeconds: .nan}}", "withinSeconds"),
    ],
)
def test_a_mistake_is_named(text: str, named: str) -> None:
    """One line that names the key."""
    with pytest.raises(ConfigError, match=named):
        parse(text, Config)
