"""Typed configuration files.

A service describes its file as ``msgspec.Struct`` classes with ``forbid_unknown_fields=True``; an
unknown key, a wrong type or a broken rule is one line that names the key. JSON is YAML too, and a
file that is JSON spares a node daemon the memory of the YAML library (1.3 MiB).
"""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")
_LIMIT_BYTES = 1 << 20


class ConfigError(Exception):
    """The configuration cannot be used; the message is one line naming file and key."""


def load(path: Path, kind: type[T]) -> T:
    """Read YAML file ``path`` as a ``kind``. Keys may be written in camelCase as in the chart.

    Raises ConfigError.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(text) > _LIMIT_BYTES:
        raise ConfigError(f"{path}: larger than {_LIMIT_BYTES} bytes")
    try:
        return parse(text.decode(), kind, source=str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: byte {error.start + 1} is wrong") from error


def parse(text: str, kind: type[T], *, source: str = "configuration") -> T:
    """Decode YAML ``text`` as a ``kind``; raises ConfigError naming ``source`` and the key."""
    data = _decode(text, source)
    try:
        return msgspec.convert({} if data is None else data, kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError(f"{source}: {error}") from error


def _decode(text: str, source: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    import yaml

    try:
        data: object = yaml.safe_load(text)
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: what looks like a date or a number and is none, such as 2001-99-99.
        line = " ".join(str(error).split())
        raise ConfigError(f"{source}: not YAML: {line}") from error
    return data
