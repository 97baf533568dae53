"""Typed configuration files.

A service describes its file as ``msgspec.Struct`` classes with ``forbid_unknown_fields=True``; an
unknown key, a wrong type or a broken rule is one line that names the key. JSON is YAML too, and a
file that is JSON spares a node daemon the memory of the YAML library (1.3 MiB).
"""

import json
from collections.abc import Hashable
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
        data: object = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return _decode_yaml(text, source)
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    # msgspec takes the last of two equal keys and says nothing.
    json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
    return data


def _unique(pairs: list[tuple[str, object]], source: str) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in unique if names.count(name) > 1)
        raise ConfigError(f"{source}: key {twice!r} is given twice")
    return unique


def _decode_yaml(text: str, source: str) -> object:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses what YAML forbids and PyYAML takes: two equal keys in one mapping."""

        def construct_mapping(
            self,
            node: yaml.MappingNode,
            deep: bool = False,  # noqa: FBT001, FBT002
        ) -> dict[Hashable, object]:
            lines: dict[tuple[str, str], int] = {}
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    line = key.start_mark.line + 1
                    if (key.tag, key.value) in lines:
                        first = lines[key.tag, key.value]
                        raise ConfigError(
                            f"{source}: key {key.value!r} is given twice, lines {first} and {line}"
                        )
                    lines[key.tag, key.value] = line
            return super().construct_mapping(node, deep)

    try:
        data: object = yaml.load(text, Loader)  # noqa: S506 (a SafeLoader)
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: what looks like a date or a number and is none, such as 2001-99-99.
        line = " ".join(str(error).split())
        raise ConfigError(f"{source}: not YAML: {line}") from error
    return data
