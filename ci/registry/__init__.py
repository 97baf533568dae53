"""A registry on the loopback interface, for tests: Google's, from its Go module, in memory."""

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ci import gobuild
from ci.gobuild import Recipe

VERSION: Final = "0.22.1"

_SOURCE = Path(__file__).with_name("main.go")
_GO_MOD = f"""\
module npu-platform.io/registry

go 1.26

require github.com/google/go-containerregistry v{VERSION}
"""


def program(cache: Path) -> Path:
    """Return the path of the server, built if needed."""
    source = _SOURCE.read_text()
    version = f"{VERSION}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"

    def recipe() -> Recipe:
        return _recipe(version, source)

    return gobuild.build(recipe, name="registry", version=version, cache=cache) / "registry"


def _recipe(version: str, source: str) -> Recipe:
    return Recipe(
        name="registry",
        version=version,
        go_mod=_GO_MOD,
        packages=("npu-platform.io/registry",),
        sources={"main.go": source},
        needs_free_bytes=1 << 29,
    )


@contextmanager
def serving(cache: Path, *, credentials: str = "") -> Iterator[str]:
    """Run a registry and give its ``host:port``; with ``user:password`` it asks for them."""
    with subprocess.Popen(
        [program(cache), credentials], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.terminate()
