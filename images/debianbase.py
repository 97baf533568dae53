"""The base layer: what CPython and gRPC need of Debian 13, and nothing to log in to.

Packages are unpacked without running their scripts, so what those would have made is made here:
the links of the merged ``/usr``, the bundle of certificates, users, a package database.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from images.packages import debian_control, debian_tree
from images.tree import File, Folder, Link, Node, Tree, merge

SUITE = "trixie"

#: Packages of the base; gcc-14-base and base-files carry licence texts others refer to.
PACKAGES = (
    *("base-files", "ca-certificates", "gcc-14-base", "libbz2-1.0", "libc6", "libexpat1"),
    *("libffi8", "libgcc-s1", "liblzma5", "libpython3.13-minimal", "libpython3.13-stdlib"),
    *("libssl3t64", "libstdc++6", "libuuid1", "libzstd1", "media-types", "netbase"),
    *("python3.13-minimal", "zlib1g"),
)

#: Folders that must exist although nothing lies in them: mount points, targets of links.
EMPTY_FOLDERS = ("dev", "proc", "run", "sys", "tmp", "usr/sbin", "var/tmp")

_CERTIFICATES = "usr/share/ca-certificates/mozilla/"
_BUNDLE = "etc/ssl/certs/ca-certificates.crt"

_USERS = """\
root:x:0:0:root:/root:/usr/sbin/nologin
nonroot:x:65532:65532:nonroot:/nonexistent:/usr/sbin/nologin
"""
_GROUPS = """\
root:x:0:
nonroot:x:65532:
"""
# Without this file glibc asks DNS before /etc/hosts.
_NSSWITCH = """\
passwd: files
group: files
hosts: files dns
"""


def unpacked(debs: Mapping[str, Path], arch: str) -> Tree:
    """Return the packages' files with everything their scripts would have added."""
    tree = merge(debian_tree(path) for path in debs.values())
    return tree | repairs(tree, arch) | status_files(debs)


def repairs(tree: Mapping[str, Node], arch: str) -> Tree:
    """Return what package scripts would have made from ``tree``."""
    merged_usr = ["bin", "lib", "sbin", *(["lib64"] if arch == "amd64" else [])]
    made: Tree = {name: Link(f"usr/{name}") for name in merged_usr}
    made |= {f"usr/{name}": Folder() for name in merged_usr}
    made |= {path: Folder() for path in EMPTY_FOLDERS}
    made |= {path: Folder(shared=True) for path in ("tmp", "var/tmp")}
    made["etc/os-release"] = Link("../usr/lib/os-release")
    made["etc/passwd"] = File(_USERS.encode())
    made["etc/group"] = File(_GROUPS.encode())
    made["etc/nsswitch.conf"] = File(_NSSWITCH.encode())
    made[_BUNDLE] = File(certificate_bundle(tree))
    # Where Debian's OpenSSL looks by default; the link usually belongs to package openssl.
    made["usr/lib/ssl/cert.pem"] = Link(f"/{_BUNDLE}")
    return made


def certificate_bundle(tree: Mapping[str, Node]) -> bytes:
    """Return all authorities of package ca-certificates in one file."""
    found = [
        node.data.strip() + b"\n"
        for path, node in sorted(tree.items())
        if path.startswith(_CERTIFICATES) and isinstance(node, File)
    ]
    if not found:
        message = f"no certificates below /{_CERTIFICATES}: has ca-certificates moved them?"
        raise ValueError(message)
    return b"".join(found)


def status_files(debs: Mapping[str, Path]) -> Tree:
    """Return the package database as images without dpkg keep it, for scanners."""
    return {
        f"var/lib/dpkg/status.d/{name}": File(debian_control(path).encode())
        for name, path in debs.items()
    }


def described(pins: Iterable[tuple[str, str]]) -> str:
    """Return ``name=version`` of packages in one line, for a label."""
    return " ".join(f"{name}={version}" for name, version in sorted(pins))
