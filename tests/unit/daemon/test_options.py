"""Options are flags and environment variables in one."""

import argparse
from pathlib import Path

import pytest

from daemon.options import Options, absolute_path, port, positive_seconds


def _options(environment: dict[str, str]) -> Options:
    options = Options("probe", prefix="NPU_PROBE", description="x", environment=environment)
    options.add("root", Path("/host"), "board root", kind=absolute_path)
    options.add("period", 5.0, "period", kind=positive_seconds)
    options.add_flag("once", "once")
    options.add_common()
    return options


def test_default_applies_when_nothing_is_given() -> None:
    """Without flag and variable the default holds."""
    parsed = _options({}).parse([])

    assert parsed.root == Path("/host")
    assert parsed.period == 5.0
    assert parsed.once is False


def test_variable_beats_default_and_flag_beats_variable() -> None:
    """The order is flag, environment, default."""
    options = _options({"NPU_PROBE_PERIOD": "7", "NPU_PROBE_ROOT": "/a", "NPU_PROBE_ONCE": "true"})

    parsed = options.parse(["--root", "/b"])

    assert parsed.period == 7.0
    assert parsed.root == Path("/b")
    assert parsed.once is True


@pytest.mark.parametrize(
    ("environment", "arguments", "named"),
    [
        ({"NPU_PROBE_PERIOD": "soon"}, [], "--period"),
        ({}, ["--period", "-1"], "--period"),
        ({}, ["--period", "inf"], "--period"),
        ({}, ["--root", "relative"], "--root"),
        ({}, ["--log-level", "loud"], "--log-level"),
        ({}, ["--log-format", "xml"], "--log-format"),
        ({}, ["--ro", "/x"], "--ro"),
        ({}, ["--bind", "8080"], "--bind"),
        ({"NPU_PROBE_BIND": ":x"}, [], "--bind"),
    ],
)
def test_mistake_exits_2_and_names_the_option(
    environment: dict[str, str],
    arguments: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bad value ends the process before anything was touched."""
    with pytest.raises(SystemExit) as ended:
        _options(environment).parse(arguments)

    assert ended.value.code == 2
    assert named in capsys.readouterr().err


def test_bad_switch_variable_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A switch takes true or false from its variable, nothing else."""
    with pytest.raises(SystemExit):
        _options({"NPU_PROBE_ONCE": "yes please"})

    assert "NPU_PROBE_ONCE" in capsys.readouterr().err


def test_unknown_variable_with_the_prefix_is_reported() -> None:
    """A misspelt variable is handed back for a warning."""
    options = _options({"NPU_PROBE_PEROID": "7", "OTHER": "1"})

    assert options.unknown_variables() == ["NPU_PROBE_PEROID"]


def test_help_names_the_variable() -> None:
    """--help tells flag, variable and default."""
    text = _options({}).parser.format_help()

    assert "NPU_PROBE_ROOT" in text
    assert "default /host" in text


def test_absolute_path_refuses_relative_text() -> None:
    """A path option is absolute, so that it means the same in every working directory."""
    with pytest.raises(argparse.ArgumentTypeError, match="not an absolute path"):
        absolute_path("x/y")


@pytest.mark.parametrize("text", ["0", "65536", "99999999", "-1", "x", "", "\u0668"])
def test_what_is_no_port_is_refused(text: str) -> None:
    """Nobody answers there."""
    with pytest.raises(argparse.ArgumentTypeError):
        port(text)
    assert port("65535") == 65535
