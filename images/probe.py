"""Look at an image from inside: import modules, report facts as JSON.

Runs in the image's own Python, handed over as an argument of ``-c``; the modules to import are
listed in a file that the caller puts beside the image's own.
"""

import importlib
import json
import os
import ssl
import sys
import warnings
from pathlib import Path

_MODULES = Path("/modules.json")


def _failures() -> dict[str, str]:
    failed = {}
    for name in json.loads(_MODULES.read_text()):
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
        "uid": os.getuid(),
        "pid": os.getpid(),
        "utf8": sys.flags.utf8_mode == 1,
        "authorities": len(ssl.create_default_context().get_ca_certs()),
        "protobuf": _optional("google.protobuf.internal.api_implementation", "Type"),
        "libyaml": _optional("yaml", "__with_libyaml__"),
    }
    print(json.dumps(report))


main()
