"""Which apt sources are Debian's, and what becomes of them for another suite."""

from pathlib import Path

import pytest

from ci import sources
from ci.sources import Entry, SourcesError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEB822 = f"""\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
 bookworm-backports
Components: main non-free-firmware
Signed-By: {KEYRING}

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: {KEYRING}

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: https://vendor.example/node
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/vendor.gpg
"""


def test_suite_is_exchanged_and_updates_and_security_are_kept() -> None:
    """Mirror and pockets stay, backports and other components go, the keyring is Debian's."""
    derived = sources.for_suite(sources.parse_deb822(DEB822), "trixie", KEYRING)
    assert [(entry.uris, entry.suites, entry.components) for entry in derived] == [
        (("http://mirror.example/debian",), ("trixie", "trixie-updates"), ("main",)),
        (("http://mirror.example/debian-security",), ("trixie-security",), ("main",)),
    ]
    assert {entry.signed_by for entry in derived} == {str(KEYRING)}
    assert all(entry.types == ("deb",) for entry in derived)


def test_rendered_sources_read_back_the_same() -> None:
    """What is written for apt means what was derived."""
    derived = sources.for_suite(sources.parse_deb822(DEB822), "trixie", KEYRING)
    assert sources.parse_deb822(sources.render(derived)) == derived


def test_one_line_sources() -> None:
    """The older format gives the same entries, options and comments considered."""
    text = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian bookworm main contrib # here
deb-src http://mirror.example/debian bookworm main
deb http://flat.example/
"""
    assert sources.parse_one_line(text) == [
        Entry(
            types=("deb",),
            uris=("http://mirror.example/debian",),
            suites=("bookworm",),
            components=("main", "contrib"),
            signed_by="/k.gpg",
        ),
        Entry(
            types=("deb-src",),
            uris=("http://mirror.example/debian",),
            suites=("bookworm",),
            components=("main",),
        ),
    ]


@pytest.mark.parametrize(
    ("line", "debian"),
    [
        ("deb http://mirror.example/debian bookworm main", True),
        ("deb http://mirror.example/debian stable-security main", True),
        (f"deb [signed-by={KEYRING}] http://mirror.example/debian bookworm main", True),
        ("deb [signed-by=/usr/share/keyrings/vendor.gpg] http://v.example bookworm main", False),
        ("deb https://vendor.example/apt cloud-sdk-bookworm main", False),
        ("deb https://vendor.example/linux bookworm stable", False),
        ("deb https://vendor.example/node nodistro main", False),
        ("deb-src http://mirror.example/debian bookworm main", False),
        ("deb cdrom:[Debian]/ bookworm main", False),
    ],
)
def test_only_debian_is_debian(line: str, *, debian: bool) -> None:
    """Sources of other vendors are told apart by suite, component or key."""
    assert [sources.is_debian(entry) for entry in sources.parse_one_line(line)] == [debian]


def test_inline_keys_of_vendors_are_not_debian() -> None:
    """A stanza that carries its own key is somebody else's."""
    text = """\
Types: deb
URIs: https://vendor.example/debian
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
 -----END PGP PUBLIC KEY BLOCK-----
"""
    assert not sources.is_debian(sources.parse_deb822(text)[0])


def test_no_debian_source_is_explained() -> None:
    """Without an archive of Debian, or with its updates alone, the error says what is needed."""
    updates = sources.parse_one_line("deb http://mirror.example/debian bookworm-updates main")
    for entries in ([], updates):
        with pytest.raises(SourcesError, match=r"component main is needed"):
            sources.for_suite(entries, "trixie", KEYRING)


def test_all_files_of_the_host_are_read(tmp_path: Path) -> None:
    """Both formats are read from where apt looks, other files are not."""
    (tmp_path / "sources.list").write_text("deb http://a.example bookworm main\n")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "b.list").write_text("deb http://b.example bookworm main\n")
    (parts / "debian.sources").write_text(DEB822)
    (parts / "c.list.save").write_text("deb http://c.example bookworm main\n")
    read = [uri for entry in sources.host_entries(tmp_path) for uri in entry.uris]
    assert read[:2] == ["http://a.example", "http://b.example"]
    assert not [uri for uri in read if uri.startswith(("http://c.", "http://off."))]


def test_host_suite_comes_from_os_release(tmp_path: Path) -> None:
    """The release's codename is read; a release without one is refused with the file's name."""
    release = tmp_path / "os-release"
    release.write_text('ID=debian\nVERSION_CODENAME="bookworm"\n')
    assert sources.host_suite(release) == "bookworm"
    release.write_text("ID=arch\n")
    with pytest.raises(SourcesError, match="os-release"):
        sources.host_suite(release)
