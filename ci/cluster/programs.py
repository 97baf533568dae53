"""Where the programs of a cluster come from."""

import os
from dataclasses import dataclass
from pathlib import Path

from ci import containerd, kubernetes, tools
from ci.cluster import pause

_PACKAGES = ("containerd", "runc", "etcd-server", "containernetworking-plugins", "conntrack")


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one cluster.

    ``debian`` is the root of unpacked Debian packages, ``containerd`` the folder of another
    containerd than Debian's, if one was asked for.
    """

    kubernetes: Path
    containerd: Path | None
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
        folders = [*self._folders, *map(Path, ("/usr/sbin", "/usr/bin", "/sbin", "/bin"))]
        return {"HOME": "/root", "LANG": "C.UTF-8", "PATH": os.pathsep.join(map(str, folders))}

    @property
    def _folders(self) -> tuple[Path, ...]:
        first = () if self.containerd is None else (self.containerd,)
        return (*first, self.kubernetes, self.debian / "usr/bin", self.debian / "usr/sbin")

    def find(self, name: str) -> Path:
        """Return the absolute path of a program that is built or unpacked."""
        for folder in self._folders:
            if (folder / name).is_file():
                return folder / name
        message = f"{name} is in none of {', '.join(map(str, self._folders))}"
        raise FileNotFoundError(message)


def provide(version: str, cache: Path, *, containerd_version: str | None = None) -> Programs:
    """Build, fetch and unpack what is not in the cache yet."""
    return Programs(
        kubernetes=kubernetes.build(version, cache),
        containerd=containerd.build(containerd_version, cache) if containerd_version else None,
        debian=tools.debian_tree("cluster", _PACKAGES, cache=cache),
        pause=pause.program(cache),
        pause_image=pause.archive(cache),
        kubectl=tools.kubectl(cache=cache),
    )
