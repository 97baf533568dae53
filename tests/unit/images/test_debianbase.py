"""What the base adds to packages whose scripts never ran."""

import pytest

from images.debianbase import certificate_bundle, repairs
from images.tree import File, Folder, Link, Tree

AUTHORITIES = "usr/share/ca-certificates/mozilla"
TREE: Tree = {
    f"{AUTHORITIES}/b.crt": File(b"B"),
    f"{AUTHORITIES}/a.crt": File(b"A\n"),
    "usr/share/ca-certificates/README": File(b"not a certificate"),
}


def test_the_bundle_holds_all_authorities_in_order() -> None:
    """Each certificate ends its line, or two would melt into one."""
    assert certificate_bundle(TREE) == b"A\nB\n"


def test_a_bundle_without_authorities_is_an_error() -> None:
    """A silent empty bundle would break TLS in the field."""
    with pytest.raises(ValueError, match="no certificates below"):
        certificate_bundle({})


@pytest.mark.parametrize(
    ("arch", "links"),
    [("amd64", {"bin", "lib", "lib64", "sbin"}), ("arm64", {"bin", "lib", "sbin"})],
)
def test_merged_usr(arch: str, links: set[str]) -> None:
    """Without these links the kernel finds no program loader."""
    made = repairs(TREE, arch)

    assert {path for path in links if made[path] == Link(f"usr/{path}")} == links
    assert all(made[f"usr/{path}"] == Folder() for path in links)


def test_users_and_temporary_files() -> None:
    """The image's user has a name, and anybody may write below /tmp."""
    made = repairs(TREE, "arm64")
    users = made["etc/passwd"]

    assert isinstance(users, File)
    assert b"\nnonroot:x:65532:65532:" in users.data
    assert made["tmp"] == Folder(shared=True)


def test_hosts_come_before_dns() -> None:
    """The C library's own default asks DNS first and breaks /etc/hosts entries of Pods."""
    configuration = repairs(TREE, "arm64")["etc/nsswitch.conf"]

    assert isinstance(configuration, File)
    assert b"hosts: files dns\n" in configuration.data
