"""Coverage-guided fuzzing of everything that reads what a board or a file says.

``python -m ci.fuzz [--seconds N] [--seed N] [TARGET …]`` runs each target of
``tests/fuzz/targets.py`` for N seconds under Atheris (libFuzzer for Python). What it found
interesting is kept in the cache and is where the next run begins; an input that breaks a law is
printed, kept beside, and fails the run. With a seed a run begins from the given inputs alone and
tries the same ones each time, so that its verdict is one on the code and not on luck.

Atheris has no build for some machines (arm64); there the laws run under hypothesis only.
"""

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ci.cache import cache_dir

ROOT = Path(__file__).parent.parent
REQUIREMENTS = ROOT / "requirements" / "fuzz.txt"
#: What Atheris is built for; elsewhere nothing is done, and said so.
_MACHINE = "x86_64"
_PYTHON = (3, 11)
_LONGEST_INPUT = 4096
#: A single input that takes longer is a hang.
_INPUT_SECONDS = 10


def available() -> bool:
    """Tell whether this machine and interpreter can run Atheris."""
    return platform.machine() == _MACHINE and sys.version_info[:2] == _PYTHON


def prepare() -> Path:
    """Install Atheris into the cache if it is not there; return where it is."""
    content = REQUIREMENTS.read_bytes() + sysconfig.get_platform().encode()
    place = cache_dir() / "fuzz" / f"atheris-{hashlib.sha256(content).hexdigest()[:16]}"
    if not place.exists():
        beside = place.with_name(f"{place.name}.{os.getpid()}.new")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes"]
        command += ["--only-binary=:all:", "--no-deps", "--target", str(beside)]
        subprocess.run([*command, "-r", str(REQUIREMENTS)], check=True)
        beside.rename(place)
    return place


def fuzz(name: str, seconds: int, seed: int, atheris: Path) -> tuple[int, str]:
    """Fuzz one target in a process of its own; return its exit code and what it printed.

    Seed 0 is a random one, and goes on from what earlier runs found.
    """
    if seed:
        with tempfile.TemporaryDirectory() as empty:
            return _fuzz(name, seconds, seed, atheris, Path(empty))
    corpus = cache_dir() / "fuzz" / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    return _fuzz(name, seconds, seed, atheris, corpus)


def _fuzz(name: str, seconds: int, seed: int, atheris: Path, corpus: Path) -> tuple[int, str]:
    broken = cache_dir() / "fuzz" / "broken" / name
    broken.mkdir(parents=True, exist_ok=True)
    result = subprocess.run(
        [
            *(sys.executable, "-m", "ci.fuzz", "--run", name, str(corpus)),
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={_LONGEST_INPUT}",
            f"-timeout={_INPUT_SECONDS}",
            f"-artifact_prefix={broken}/",
        ],
        check=False,
        capture_output=True,
        text=True,
        errors="replace",
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": str(atheris),
            "PYTHONHASHSEED": str(seed) if seed else "random",
        },
    )
    return result.returncode, result.stdout + result.stderr


def run(name: str, arguments: Sequence[str]) -> None:
    """Fuzz one target in this process; never returns."""
    import atheris

    # Imported here for the first time, so that their branches are counted.
    with atheris.instrument_imports(include=["npu", "thermal.exposition", "thermal.readings"]):
        from tests.fuzz.targets import TARGETS

    target, inputs = TARGETS[name]
    corpus = Path(arguments[0])
    for content in inputs:
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    atheris.Setup([name, *arguments], target)
    atheris.Fuzz()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 where an input broke a law."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--run"]:
        run(given[1], given[2:])
    parser = argparse.ArgumentParser(prog="python -m ci.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target [default 60]")
    parser.add_argument("--seed", type=int, default=0, help="the same inputs each time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all by default")
    options = parser.parse_args(given)
    if not available():
        print(f"no fuzzer for {platform.machine()} and Python {platform.python_version()}: skipped")
        return 0
    from tests.fuzz.targets import TARGETS

    atheris = prepare()
    started = time.monotonic()
    names = options.targets or list(TARGETS)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = pool.map(
            lambda name: (name, *fuzz(name, options.seconds, options.seed, atheris)), names
        )
        failed = 0
        for name, code, output in results:
            summary = [line for line in output.splitlines() if "cov:" in line or "Done" in line]
            print(f"{'ok  ' if code == 0 else 'FAIL'} {name:<16} {' '.join(summary[-1:])}")
            if code != 0:
                failed += 1
                print(output[-6000:])
    print(f"{len(names)} targets, {failed} failed, {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
