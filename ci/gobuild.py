"""Build programs from published Go modules into the cache, once per version.

The work is described by data (``Recipe``); the result is a folder of programs that appears
complete or not at all. Long builds say what they are doing; everything the compiler says is
kept in a log file.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ci import gotool
from ci.lock import exclusive

_HEARTBEAT_SECONDS = 30.0
_QUOTED_LINES = 15


class BuildError(RuntimeError):
    """A program could not be built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Programs to build from one module.

    ``go_mod`` is the text of the main module's ``go.mod``: which version of which module, and
    what replaces what. ``packages`` are the import paths of the commands. ``sources`` are files of
    the main module by path. ``needs_free_bytes`` is what a first build takes on disk for sources,
    build cache and result.
    """

    name: str
    version: str
    go_mod: str
    packages: tuple[str, ...]
    ldflags: str = "-s -w"
    sources: Mapping[str, str] = field(default_factory=dict)
    needs_free_bytes: int = 2 << 30

    @property
    def programs(self) -> tuple[str, ...]:
        """Names of the built programs: the last elements of the import paths."""
        return tuple(package.rsplit("/", 1)[-1] for package in self.packages)


def requiring(module: str, version: str, *, name: str) -> str:
    """Return the ``go.mod`` of a main module ``name`` that needs one module and replaces none."""
    language = ".".join(gotool.VERSION.split(".")[:2])
    return f"module npu-platform.invalid/{name}\ngo {language}\nrequire {module} v{version}\n"


def folder(cache: Path, name: str, version: str) -> Path:
    """Return where the programs of ``name`` at ``version`` are or will be."""
    return cache / name / version / "bin"


def is_built(bin_dir: Path, programs: Sequence[str]) -> bool:
    """Tell whether every program is there."""
    return all((bin_dir / program).is_file() for program in programs)


def build(recipe_of: Callable[[], Recipe], *, name: str, version: str, cache: Path) -> Path:
    """Build if needed and return the folder with the programs.

    ``recipe_of`` is only called when something has to be built: it may need the network.
    Raises ``BuildError`` or ``ci.command.CommandError`` with the reason and the log's path.
    """
    bin_dir = folder(cache, name, version)
    if bin_dir.is_dir():
        return bin_dir
    with exclusive(cache / name / ".lock", reason=f"it is building {name}"):
        if bin_dir.is_dir():
            return bin_dir
        recipe = recipe_of()
        _check_space(recipe, cache)
        log = cache / "log" / f"build-{name}-{version}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache / name, prefix=f".{version}-") as temporary:
            built = Path(temporary) / "result"
            _build_all(recipe, cache=cache, work=Path(temporary), out=built / "bin", log=log)
            if bin_dir.parent.exists():
                shutil.rmtree(bin_dir.parent)
            built.rename(bin_dir.parent)
    return bin_dir


def _check_space(recipe: Recipe, cache: Path) -> None:
    free = shutil.disk_usage(cache).free
    warm = (cache / "go" / "build").is_dir()
    needed = recipe.needs_free_bytes // (4 if warm else 1)
    if free < needed:
        message = (
            f"building {recipe.name} {recipe.version} needs about {needed / 2**30:.1f} GiB "
            f"below {cache}, {free / 2**30:.1f} GiB are free: make room or point "
            "NPU_PLATFORM_CACHE at a larger disk"
        )
        raise BuildError(message)


def _build_all(recipe: Recipe, *, cache: Path, work: Path, out: Path, log: Path) -> None:
    source = work / "source"
    source.mkdir()
    out.mkdir(parents=True)
    for name, text in {"go.mod": recipe.go_mod, **recipe.sources}.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    total = len(recipe.packages)
    began = time.monotonic()
    with log.open("w") as log_file:
        for number, package in enumerate(recipe.packages, start=1):
            program = package.rsplit("/", 1)[-1]
            _say(f"building {program} {recipe.version} ({number} of {total})")
            command: list[str | Path] = [
                *(gotool.go(cache), "build", "-mod=mod", "-trimpath", "-buildvcs=false"),
                *("-ldflags", recipe.ldflags, "-o", out, package),
            ]
            log_file.write(f"# {' '.join(map(str, command))}\n")
            log_file.flush()
            process = subprocess.Popen(
                ["nice", "-n", "5", *map(str, command)],
                cwd=source,
                env=gotool.environment(cache),
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
            )
            status = _wait(process, program, began)
            if status != 0:
                raise BuildError(_explain(recipe, program, status, log))
    _say(f"built {recipe.name} {recipe.version} in {time.monotonic() - began:.0f} s")


def _wait(process: subprocess.Popen[bytes], program: str, began: float) -> int:
    try:
        while True:
            try:
                return process.wait(_HEARTBEAT_SECONDS)
            except subprocess.TimeoutExpired:
                _say(f"  still building {program}, {time.monotonic() - began:.0f} s so far")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _explain(recipe: Recipe, program: str, status: int, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    hint = ""
    if any("no space left on device" in line for line in lines):
        hint = "\nthe disk is full: make room or point NPU_PLATFORM_CACHE at a larger disk"
    elif status < 0 or any("signal: killed" in line for line in lines):
        hint = "\nthe compiler was killed, most likely for want of memory (3 GiB are needed)"
    said = "\n".join(f"  {line}" for line in lines[-_QUOTED_LINES:])
    return f"could not build {program} {recipe.version}, full log in {log}:\n{said}{hint}"


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
