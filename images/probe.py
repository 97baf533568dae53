"""Look at an image from inside: import every module, report facts as JSON.

Runs in the image's own Python, handed over as an argument of ``-c``.
"""

import importlib
import json
import os
import ssl
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

_SUFFIXES = (".pyc", ".py", ".so")


def _modules(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        words = path.relative_to(folder).with_name(path.name.partition(".")[0]).parts
        skipped = not all(word.isidentifier() for word in words) or words[0] == "lib-dynload"
        if path.suffix not in _SUFFIXES or skipped or words[-1] == "__main__":
            continue
        yield ".".join(words[:-1] if words[-1] == "__init__" else words)


def _failures() -> dict[str, str]:
    failed = {}
    for folder in map(Path, sys.path):
        for name in dict.fromkeys(_modules(folder)) if folder.is_dir() else ():
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001 - some modules raise SystemExit
                failed[name] = f"{type(error).__name__}: {error}"
    return failed


def _optional(module: str, attribute: str) -> object:
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except ImportError:
        return None
    return found() if callable(found) else found


def main() -> None:
    """Print the report."""
    warnings.simplefilter("ignore")
    failed = _failures()
    report = {
        "failed": failed,
        "modules": len(sys.modules),
        "uid": os.getuid(),
        "pid": os.getpid(),
        "utf8": sys.flags.utf8_mode == 1,
        "authorities": len(ssl.create_default_context().get_ca_certs()),
        "protobuf": _optional("google.protobuf.internal.api_implementation", "Type"),
        "libyaml": _optional("yaml", "__with_libyaml__"),
    }
    print(json.dumps(report))


main()
