"""The documentation as the tests of this folder read it."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
_FENCED: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_SHELL: Final = re.compile(
    r"^ *```(?:sh|bash|console|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL
)
#: A block without a language: output, and among it the commands that made it.
_PLAIN: Final = re.compile(r"^ *```\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_NAMED: Final = re.compile(r"^ *```\w+\n.*?^ *```", re.MULTILINE | re.DOTALL)
_PROMPTED: Final = re.compile(
    r"(?:\$ )?((?:helm|kubectl|python3?|\$\(make -s python\)|make|curl|ctr) .*)"
)
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_LINK: Final = re.compile(
    r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", re.MULTILINE
)


def pages() -> list[Path]:
    """Return every page of the repository."""
    asked = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).is_file()]


def links(page: Path) -> Iterator[str]:
    """Yield where a page links to, code aside."""
    for found in _LINK.finditer(_FENCED.sub("", page.read_text())):
        yield next(group for group in found.groups() if group)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = _FENCED.sub("", page.read_text())
    made: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        made.add(slug if slug not in made else f"{slug}-1")
    return made


def commands(page: Path) -> Iterator[str]:
    """Yield the commands of a page: continued lines joined, comments removed.

    These are all lines of shell blocks, and of blocks without a language those that begin with the
    name of a program, behind a prompt or not.
    """
    text = page.read_text()
    for block in _SHELL.findall(text):
        yield from _lines(block)
    for block in _PLAIN.findall(_NAMED.sub("", text)):
        for line in _lines(block):
            if found := _PROMPTED.fullmatch(line):
                yield found[1]


def _lines(block: str) -> Iterator[str]:
    for line in re.sub(r"(\\|\|)\n\s*", r"\1 ", block).splitlines():
        command = re.sub(r"(?:^|\s+)#.*$", "", line).strip()
        if command:
            yield re.sub(r"\\ +", "", command)
