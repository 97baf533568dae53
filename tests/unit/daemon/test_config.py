"""Configuration files are typed; a mistake is one line that names the key."""

from pathlib import Path

import msgspec
import pytest

from daemon.config import ConfigError, load, parse


class Inner(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """A nested block."""

    hold_seconds: float = 180.0


class Sample(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """A configuration with one block."""

    inner: Inner = Inner()
    names: tuple[str, ...] = ()


def test_empty_file_gives_the_defaults() -> None:
    """No key is a valid configuration."""
    assert parse("", Sample) == Sample()


def test_camel_case_keys_are_read() -> None:
    """Keys are written as in the chart's values."""
    assert parse("inner: {holdSeconds: 60}", Sample).inner.hold_seconds == 60


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("inner: {hold: 1}", "hold"),
        ("inner: {holdSeconds: soon}", "inner.holdSeconds"),
        ("names: {a: 1}", "names"),
        ("- 1", "object"),
        ("a: [", "not YAML"),
        ("a: &x [*x, *y]", "not YAML"),
        ("a: 2001-99-99", "month must be"),
        ("a: 0b_", "not YAML"),
        ("a: " + "9" * 5000, "not YAML"),
        ('{"a":' * 20_000, "nested too deeply"),
        ("a: " + "{a: " * 3000, "nested too deeply"),
        (
            "inner:\n  holdSeconds: 1\n  holdSeconds: 2",
            "'holdSeconds' is given twice, lines 2 and 3",
        ),
        ("names: []\ninner: {}\nnames: [a]", "'names' is given twice, lines 1 and 3"),
        ("inner: {holdSeconds: 1, holdSeconds: 1}", "'holdSeconds' is given twice"),
        ('{"inner": {"holdSeconds": 1, "holdSeconds": 1}}', "'holdSeconds' is given twice"),
    ],
)
def test_mistake_is_one_line_naming_the_key(text: str, named: str) -> None:
    """The message fits one log line and says where to look."""
    with pytest.raises(ConfigError) as raised:
        parse(text, Sample, source="/etc/x.yaml")

    message = str(raised.value)
    assert message.startswith("/etc/x.yaml: ")
    assert named in message
    assert "\n" not in message


def test_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are a mistake, never silently another character."""
    file = tmp_path / "x.yaml"
    file.write_bytes(b'names: ["kaf\xe9"]\n')

    with pytest.raises(ConfigError, match=r"x\.yaml: not UTF-8: byte 13"):
        load(file, Sample)


def test_missing_file_is_named(tmp_path: Path) -> None:
    """The path of a file that cannot be read is in the message."""
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read"):
        load(tmp_path / "gone.yaml", Sample)


def test_huge_file_is_refused(tmp_path: Path) -> None:
    """A configuration is bounded."""
    file = tmp_path / "big.yaml"
    file.write_bytes(b"#" * (2 << 20))

    with pytest.raises(ConfigError, match="larger than"):
        load(file, Sample)


def test_json_is_read_like_yaml() -> None:
    """A file in JSON means the same, mistakes included."""
    assert parse('{"inner": {"holdSeconds": 60}}', Sample).inner.hold_seconds == 60
    with pytest.raises(ConfigError, match=r"inner\.holdSeconds"):
        parse('{"inner": {"holdSeconds": "soon"}}', Sample)
