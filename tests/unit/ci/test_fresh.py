"""The emulated guest: what it is told, how it is started, what its report says."""

import re
from pathlib import Path

import pytest

from ci.fresh import client, image, machine
from ci.fresh.machine import Machine
from ci.fresh.record import Record
from ci.sources import Entry

_REPORT = """\
Linux 6.1.0
@@ start clone
@@ end clone 0
@@ start demo
… helm install
          seconds  step          seen
  FAILED      9.0  helm install
              9.0  in all

later words
@@ end demo 2
@@ done 2
"""


def _record(text: str) -> Record:
    """Read a report whose lines come 10 seconds apart, the first after 60."""
    record = Record(began=1000.0)
    for number, line in enumerate(text.splitlines(keepends=True)):
        record.take(line, 1060.0 + 10 * number)
    return record


def test_first_words_end_the_boot() -> None:
    """Whatever the guest says first, it has booted."""
    boot = _record("Linux 6.1.0\n").steps[0]
    assert (boot.name, boot.seconds, boot.status) == ("boot", 60.0, 0)


def test_steps_have_times_and_outcomes() -> None:
    """Each step is timed by the arrival of its two lines."""
    record = _record(_REPORT)
    assert [line.split() for line in record.table()] == [
        ["ok", "60.0", "boot"],
        ["ok", "10.0", "clone"],
        ["FAILED", "70.0", "demo"],
    ]
    assert record.status == 2


def test_table_of_the_demonstration_is_found() -> None:
    """It reaches from its head to the next empty line."""
    table = _record(_REPORT).demo_table()
    assert [line.split()[0] for line in table] == ["seconds", "FAILED", "9.0"]
    assert _record("@@ start demo\n").demo_table() == []


def test_cut_off_visit_has_no_status() -> None:
    """A step that did not end is shown as such, and the visit has no result."""
    record = _record("@@ start demo\nwords\n")
    assert record.status is None
    assert record.table()[-1].split() == ["CUT", "demo"]


def test_only_ways_to_registries_are_handed_over() -> None:
    """Proxies and certificates are; tokens and everything else of the caller's are not."""
    environment = {
        "https_proxy": "http://proxy.example:3128",
        "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
        "HOME": "/root",
        "GITHUB_TOKEN": "secret",
        "PIP_FIND_LINKS": "/opt/wheels",
    }
    assert client.variables(environment) == {
        "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
        "https_proxy": "http://proxy.example:3128",
    }


def test_values_survive_the_shell() -> None:
    """Variables are quoted."""
    assert client.script({"NO_PROXY": "a b;c"}) == "export NO_PROXY='a b;c'\n"


def test_apt_is_told_how_archives_are_reached() -> None:
    """Hooks and folders of this machine mean nothing to the guest."""
    dump = (
        'Dir::Cache "var/cache/apt";\n'
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::Check-Date "false";\n'
        'DPkg::Post-Invoke:: "rm -f /x";\n'
    )
    assert client.apt_settings(dump) == (
        'Acquire::http::Proxy "http://proxy.example:3128";\nAcquire::Check-Date "false";\n'
    )


def test_bare_system_comes_from_the_suite_not_its_updates() -> None:
    """Debootstrap knows one suite; security updates may live elsewhere."""
    security = Entry(
        types=("deb",),
        uris=("https://security.example/",),
        suites=(f"{image.SUITE}-security",),
        components=("main",),
    )
    main = Entry(
        types=("deb",), uris=("https://main.example/",), suites=(image.SUITE,), components=("main",)
    )
    assert image.mirror([security, main]) == "https://main.example/"


@pytest.fixture
def guest(tmp_path: Path) -> Machine:
    """Return a machine that is not run."""
    return Machine(
        kernel=tmp_path / "vmlinuz",
        initrd=tmp_path / "initrd.img",
        disk=tmp_path / "root.ext4",
        visitor=tmp_path / "visitor.ext4",
        console=tmp_path / "console.log",
        report=tmp_path / "report.log",
    )


def test_bare_disk_is_never_written(guest: Machine) -> None:
    """The cached disk serves all runs."""
    drives = [word for word in machine.command(guest) if word.startswith("file=")]
    bare = next(word for word in drives if str(guest.disk) in word)
    assert "snapshot=on" in bare.split(",")


def test_nothing_reaches_the_guest(guest: Machine) -> None:
    """No port is forwarded and no interface of the machine is used."""
    words = machine.command(guest)
    assert [words[at + 1] for at, word in enumerate(words) if word == "-netdev"] == ["user,id=net"]


def test_report_goes_to_the_second_serial_port(guest: Machine) -> None:
    """The visitor's script writes to ttyS1."""
    words = machine.command(guest)
    serial = [words[at + 1] for at, word in enumerate(words) if word == "-serial"]
    assert serial == [f"file:{guest.console}", f"file:{guest.report}"]


def test_recipe_names_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another recipe is another disk."""
    before = image.recipe_key()
    monkeypatch.setattr(image, "PACKAGES", (*image.PACKAGES, "sl"))
    assert re.fullmatch("[0-9a-f]{12}", before)
    assert image.recipe_key() != before
