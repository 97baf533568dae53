"""Builds the documentation as a static site: ``python -m ci.site --out FOLDER``.

The tool has an environment of its own, in the cache, from ``requirements/site.txt``.
"""

import argparse
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final

from ci.cache import cache_dir
from ci.command import run

ROOT: Final = Path(__file__).parent.parent
REQUIREMENTS: Final = ROOT / "requirements" / "site.txt"
CONFIG: Final = ROOT / "ci" / "mkdocs.yaml"
STYLE: Final = CONFIG.with_name("site.css")
_PATTERNS: Final = ("*.md", "docs/images/*", "docs/examples/*.yaml")


def build(out: Path) -> None:
    """Write the site into ``out``, replacing what is there; raises CommandError."""
    with tempfile.TemporaryDirectory(prefix="npu-platform-site-") as folder:
        stage(Path(folder))
        run(
            [
                *(str(_environment() / "bin" / "mkdocs"), "build", "--strict", "--quiet"),
                *("--config-file", str(Path(folder) / "mkdocs.yaml")),
                *("--site-dir", str(out.resolve())),
            ],
            purpose="build the site",
            timeout_seconds=600,
        )


def stage(folder: Path) -> None:
    """Copy pages, pictures and examples to where the configuration looks for them."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_PATTERNS]
    for name in run(asked, purpose="list the pages", cwd=ROOT).splitlines():
        source, target = ROOT / name, folder / "pages" / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    shutil.copyfile(CONFIG, folder / CONFIG.name)
    shutil.copyfile(STYLE, folder / "pages" / STYLE.name)


def _environment() -> Path:
    lock = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]
    place = cache_dir() / "venv" / f"site-{lock}"
    run(
        [str(ROOT / "ci" / "bootstrap.sh"), str(place), str(REQUIREMENTS)],
        purpose="create the environment of the site's tool",
        timeout_seconds=600,
    )
    return place


def main() -> None:
    """Build it."""
    parser = argparse.ArgumentParser(prog="python -m ci.site", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    out: Path = parser.parse_args().out
    build(out)
    print(f"open {out / 'index.html'}")


if __name__ == "__main__":
    main()
