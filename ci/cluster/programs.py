"""Where the programs of a cluster come from."""

import os
from dataclasses import dataclass
from pathlib import Path

from ci import kubernetes, tools
from ci.cluster import pause

_PACKAGES = ("containerd", "runc", "etcd-server", "containernetworking-plugins", "conntrack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one cluster. ``debian`` is the root of unpacked Debian packages."""

    kubernetes: Path
    debian: Path
    pause: Path
    pause_image: Path
    kubectl: Path

    @property
    def cni_plugins(self) -> Path:
        """The folder of the CNI plugins."""
        return self.debian / "usr" / "lib" / "cni"

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the cluster's programs.

        Nothing of the caller's: a proxy variable would reach into the API server. containerd
        looks for its shim and for runc on the PATH.
        """
        folders = [
            self.kubernetes,
            self.debian / "usr" / "bin",
            self.debian / "usr" / "sbin",
            *map(Path, ("/usr/sbin", "/usr/bin", "/sbin", "/bin")),
        ]
        return {"HOME": "/root", "LANG": "C.UTF-8", "PATH": os.pathsep.join(map(str, folders))}

    def find(self, name: str) -> Path:
        """Return the absolute path of a program that is built or unpacked."""
        for folder in (self.kubernetes, self.debian / "usr/bin", self.debian / "usr/sbin"):
            if (folder / name).is_file():
                return folder / name
        message = f"{name} is neither in {self.kubernetes} nor below {self.debian}"
        raise FileNotFoundError(message)


def provide(version: str, cache: Path) -> Programs:
    """Build, fetch and unpack what is not in the cache yet."""
    return Programs(
        kubernetes=kubernetes.build(version, cache),
        debian=tools.debian_tree("cluster", _PACKAGES, cache=cache),
        pause=pause.program(cache),
        pause_image=pause.archive(cache),
        kubectl=tools.kubectl(cache=cache),
    )
