"""Configuration file and options: defaults, limits, and mistakes that name their key."""

from pathlib import Path

import pytest

from daemon.config import ConfigError
from exporter.main import main
from exporter.settings import DEFAULT_PATH, Settings, load


def test_default_file_may_be_missing() -> None:
    """Outside a chart the exporter starts without a file."""
    assert not DEFAULT_PATH.exists()
    assert load(DEFAULT_PATH) == Settings()


def test_named_file_must_exist(tmp_path: Path) -> None:
    """A typing mistake in the path is not ignored."""
    with pytest.raises(ConfigError, match="nowhere"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("resourcePrefixes: []", "resourcePrefixes"),
        ("resourcePrefixes: ['']", "resourcePrefixes"),
        ("collectorDeadlineSeconds: 0", "collectorDeadlineSeconds"),
        ("podRetentionSeconds: -1", "podRetentionSeconds"),
        ("podRetention: 3", "podRetention"),
    ],
)
def test_mistakes_end_with_code_2_and_the_key(
    text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is served, one line tells which key to change."""
    path = tmp_path / "exporter.yaml"
    path.write_text(text)
    assert main([f"--config={path}", "--check"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line
    assert str(path) in line


def test_good_file_is_read(tmp_path: Path) -> None:
    """Keys are written as in the chart."""
    path = tmp_path / "exporter.yaml"
    path.write_text("resourcePrefixes: [example.com/]\npodRetentionSeconds: 60\n")
    assert load(path) == Settings(resource_prefixes=("example.com/",), pod_retention_seconds=60)
    assert main([f"--config={path}", "--check"]) == 0


@pytest.mark.parametrize("arguments", [["--tls-cert-file=/c"], ["--tls-client-ca-file=/ca"]])
def test_options_that_cannot_work_end_with_code_2(arguments: list[str]) -> None:
    """Half a TLS configuration never serves plain HTTP instead."""
    assert main([*arguments, "--check"]) == 2
