"""Packages of the system."""

import pytest

from ci import system
from ci.system import Need, SystemPackageError


def test_what_is_there_is_not_installed() -> None:
    """A met need asks nobody."""
    system.ensure([Need(package="dash", command="sh")], purpose="a test")


def test_without_root_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not install is told what to type."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    needs = [Need(package="b-tool", command="no-such-b"), Need(package="a", library="no-such.so")]
    with pytest.raises(SystemPackageError, match="apt-get install a b-tool"):
        system.ensure(needs, purpose="a test")
