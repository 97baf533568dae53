"""Read the host's apt sources and derive those of another Debian suite from them.

The mirrors, proxies and credentials of a machine are its administrator's business: they are
taken from the machine's own files and only the suite is exchanged. Formats: sources.list(5).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)

_CODENAMES = frozenset(
    {"bullseye", "bookworm", "trixie", "forky", "duke", "sid"}
    | {"oldoldstable", "oldstable", "stable", "testing", "unstable"}
)
_POCKETS = ("-updates", "-security")
_ONE_LINE = re.compile(r"^(?P<type>deb|deb-src)\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<rest>\S.*)$")


class SourcesError(RuntimeError):
    """The machine's apt sources do not lead to a Debian archive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One source of packages. ``signed_by`` is a keyring path, an inline key or absent."""

    types: tuple[str, ...]
    uris: tuple[str, ...]
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str | None = None


def parse_deb822(text: str) -> list[Entry]:
    """Read the enabled stanzas of a ``.sources`` file."""
    return [
        Entry(
            types=tuple(fields.get("types", "").split()),
            uris=tuple(fields.get("uris", "").split()),
            suites=tuple(fields.get("suites", "").split()),
            components=tuple(fields.get("components", "").split()),
            signed_by=fields.get("signed-by") or None,
        )
        for fields in _stanzas(text)
        if fields.get("enabled", "yes").lower() not in {"no", "false", "off", "0"}
    ]


def _stanzas(text: str) -> list[dict[str, str]]:
    stanzas: list[dict[str, str]] = [{}]
    key = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if not line.strip():
            stanzas.append({})
        elif line[0] in " \t" and key:
            stanzas[-1][key] = f"{stanzas[-1].get(key, '')}\n{line.strip()}".strip()
        else:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            stanzas[-1][key] = value.strip()
    return [stanza for stanza in stanzas if stanza]


def parse_one_line(text: str) -> list[Entry]:
    """Read the lines of a ``.list`` file."""
    entries = []
    for raw in text.splitlines():
        match = _ONE_LINE.match(raw.partition("#")[0].strip())
        if match is None:
            continue
        uri, *words = match["rest"].split()
        if not words:
            continue
        options = dict(
            option.split("=", 1) for option in (match["options"] or "").split() if "=" in option
        )
        entries.append(
            Entry(
                types=(match["type"],),
                uris=(uri,),
                suites=(words[0],),
                components=tuple(words[1:]),
                signed_by=options.get("signed-by"),
            )
        )
    return entries


def is_debian(entry: Entry) -> bool:
    """Tell Debian's own archive from third-party ones.

    Debian's: binary packages of component ``main`` in a suite of Debian's naming, signed by
    Debian's keyring or, as in files older than signed-by, by whatever apt trusts.
    """
    return (
        "deb" in entry.types
        and "main" in entry.components
        and bool(entry.suites)
        and all(_split_suite(suite)[0] in _CODENAMES for suite in entry.suites)
        and (entry.signed_by is None or "debian-archive" in entry.signed_by)
        and not any(uri.startswith("cdrom:") for uri in entry.uris)
    )


def _split_suite(suite: str) -> tuple[str, str]:
    base, dash, pocket = suite.partition("-")
    return base, dash + pocket


def for_suite(entries: Iterable[Entry], suite: str, keyring: Path) -> list[Entry]:
    """Return Debian's entries among ``entries``, pointed at ``suite`` and checked by ``keyring``.

    Kept are the suite itself, its updates and its security updates. Backports and proposed
    updates are left out: what is fetched shall not depend on what an administrator tries.
    """
    derived: list[Entry] = []
    for entry in filter(is_debian, entries):
        pockets = [_split_suite(name)[1] for name in entry.suites]
        suites = tuple(dict.fromkeys(suite + p for p in pockets if p in ("", *_POCKETS)))
        if not suites:
            continue
        one = replace(
            entry,
            types=("deb",),
            suites=suites,
            components=("main",),
            signed_by=str(keyring),
        )
        if one not in derived:
            derived.append(one)
    if not any(suite in entry.suites for entry in derived):
        message = (
            "no Debian archive found in /etc/apt/sources.list or /etc/apt/sources.list.d: "
            "an enabled entry with type deb, a Debian suite and component main is needed "
            "(see sources.list(5)); entries of other vendors are not used"
        )
        raise SourcesError(message)
    return derived


def render(entries: Sequence[Entry]) -> str:
    """Write entries as a deb822 file."""
    return "\n".join(
        f"Types: {' '.join(entry.types)}\n"
        f"URIs: {' '.join(entry.uris)}\n"
        f"Suites: {' '.join(entry.suites)}\n"
        f"Components: {' '.join(entry.components)}\n"
        f"Signed-By: {entry.signed_by}\n"
        for entry in entries
    )


def host_entries(etc_apt: Path = Path("/etc/apt")) -> list[Entry]:
    """Read every source the host's apt would read."""
    entries = []
    main = etc_apt / "sources.list"
    if main.is_file():
        entries += parse_one_line(main.read_text())
    for path in sorted((etc_apt / "sources.list.d").glob("*")):
        if path.suffix == ".sources":
            entries += parse_deb822(path.read_text())
        elif path.suffix == ".list":
            entries += parse_one_line(path.read_text())
    return entries


def host_keyring() -> Path:
    """Return Debian's archive keyring as installed on this host."""
    for path in KEYRINGS:
        if path.is_file():
            return path
    message = f"{KEYRINGS[0]} is missing: install the package debian-archive-keyring"
    raise SourcesError(message)


def host_suite(os_release: Path = Path("/etc/os-release")) -> str:
    """Return the codename of the host's Debian release."""
    for line in os_release.read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "VERSION_CODENAME":
            return value.strip().strip('"')
    message = f"{os_release} names no VERSION_CODENAME: a released Debian is needed"
    raise SourcesError(message)
