"""Device nodes and libraries by Container Device Interface instead of in the answer to Allocate.

The kubelet keeps what Allocate answered and gives it again when a container restarts. With CDI it
keeps a name, which the container runtime looks up in a file whenever it creates a container. The
file is written anew at each scan, so the nodes are always today's. The runtime must know CDI:
containerd 2, containerd 1.7 with ``enable_cdi``, CRI-O.

The format is https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from daemon.logs import fields
from npu.errors import NpuError
from npu.host import Host
from plugin.allocation import CDI_KIND, Grant, Offer, everything_of
from plugin.files import replace_file

log = logging.getLogger(__name__)

#: Where container runtimes look for what programs of the node generate.
DEFAULT_DIRECTORY = "/var/run/cdi"
FILE_NAME = "npu-platform.json"
#: The first version with a node's path on the host beside that in the container.
CDI_VERSION = "0.5.0"
_LIMIT_BYTES = 1 << 20


def spec(
    offer: Offer, *, on_node: Callable[[str], str], resolved: Callable[[str], str]
) -> dict[str, object]:
    """Return the file's content: one device per NPU, whatever slots it has.

    ``resolved`` follows the links of a path of the board, ``on_node`` says what the runtime calls
    it. Environment variables stay in the kubelet's hands, as they differ between slots.
    """

    def runtime_path(path: str) -> str:
        return on_node(resolved(path))

    return {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [
            {
                "name": npu.id,
                "containerEdits": edits_of(
                    everything_of(offer, npu, lambda p: on_node(resolved(p)))
                ),
            }
            for npu in offer.table.npus.values()
        ],
    }


def edits_of(given: Grant) -> dict[str, object]:
    """Return nodes and files in the words of the format, without the environment."""
    edits: dict[str, object] = {
        "deviceNodes": [
            {"path": node.container_path, "hostPath": node.host_path, "permissions": "rw"}
            for node in given.nodes
        ]
    }
    if given.files:
        edits["mounts"] = [
            {
                "hostPath": file.host_path,
                "containerPath": file.container_path,
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
            for file in given.files
        ]
    return edits


class CdiFile:
    """One file of the container runtime's; a service whose stop removes it.

    ``problem`` tells why the file is not what it should be, None where it is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._stopped = False
        self.problem: str | None = None
        self.failures = 0

    def start(self) -> None:
        """Do nothing: whoever has something to say writes."""

    def put(self, content: Mapping[str, object] | None) -> None:
        """Make the file say ``content``, None to have no file; a failure is told and counted."""
        problem: str | None = None
        try:
            with self._lock:
                # A look that was under way when this one was told to end must not write anew.
                if self._stopped:
                    pass
                elif content is None:
                    self._path.unlink(missing_ok=True)
                # Somebody may have removed it: a tidy administrator, or another plugin's end.
                elif self._current() != (data := (json.dumps(content, indent=2) + "\n").encode()):
                    # Runtimes read what ends in .json or .yaml.
                    replace_file(self._path, data, mode=0o644)
                    log.info("Wrote the CDI file", extra=fields(path=self._path))
        except OSError as error:
            problem = f"{self._path}: {error.strerror} ({error.errno})"
            self.failures += 1
        if problem is not None and problem != self.problem:
            log.error("Cannot tell the container runtime", extra=fields(reason=problem))
        self.problem = problem

    def stop(self) -> None:
        """Remove the file: a name that is not served any more must not resolve."""
        try:
            with self._lock:
                self._stopped = True
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("Cannot remove the CDI file", extra=fields(path=self._path, error=error))

    def _current(self) -> bytes | None:
        try:
            with self._path.open("rb") as file:
                return file.read(_LIMIT_BYTES)
        except FileNotFoundError:
            return None


class SpecFile(CdiFile):
    """The file in ``directory`` with a device per NPU."""

    def __init__(self, directory: Path, host: Host) -> None:
        super().__init__(directory / FILE_NAME)
        self._host = host

    def write(self, offer: Offer) -> None:
        """Make the file say what ``offer`` is; a write that fails is told and tried again."""
        self.put(spec(offer, on_node=self._host.on_node, resolved=real_path_on(self._host)))


def real_path_on(host: Host) -> Callable[[str], str]:
    """Return a function that follows the links of a board's path as far as it can."""

    def resolved(path: str) -> str:
        try:
            return host.real_path(path)
        except NpuError:
            return path

    return resolved
