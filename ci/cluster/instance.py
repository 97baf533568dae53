"""Which instances exist on this machine, and what was made for them.

The state is the machine's, not a user's: numbers must be unique whoever asks, so it lies below
/var/lib and not in a cache.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.cluster import network
from ci.cluster.plan import MAX_INSTANCES, Plan
from ci.lock import exclusive

DEFAULT_ROOT = Path("/var/lib/npu-platform-cluster")
_RECORD = "instance.json"


class InstanceError(RuntimeError):
    """The instance cannot be made or is not what the caller takes it for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What is written down about an instance."""

    name: str
    index: int
    version: str
    nodes: int
    containerd: str | None = None

    @property
    def plan(self) -> Plan:
        """Names and addresses."""
        return Plan(name=self.name, index=self.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The instances below ``root``."""

    root: Path

    def folder(self, name: str) -> Path:
        """Return where an instance keeps its files."""
        return self.root / name

    def read(self, name: str) -> Instance | None:
        """Return the record of an instance, None if there is none or it is damaged."""
        try:
            return Instance(**json.loads((self.folder(name) / _RECORD).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def names(self) -> list[str]:
        """Return the names of all instances, damaged ones included."""
        if not self.root.is_dir():
            return []
        return sorted(path.name for path in self.root.iterdir() if path.is_dir())

    def write(self, instance: Instance) -> None:
        """Write a record down, whole or not at all."""
        folder = self.folder(instance.name)
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{_RECORD}"
        temporary.write_text(json.dumps(asdict(instance), indent=1) + "\n")
        temporary.replace(folder / _RECORD)

    def allocate(
        self, name: str, *, version: str, nodes: int, containerd: str | None = None
    ) -> Instance:
        """Give a new instance the lowest number nobody uses; the caller holds no lock yet."""
        with self.locked():
            taken = {found.index for other in self.names() if (found := self.read(other))}
            index = first_free(taken)
            instance = Instance(
                name=name, index=index, version=version, nodes=nodes, containerd=containerd
            )
            self.write(instance)
        return instance

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock over numbers and over what the machine was changed in."""
        with exclusive(self.root / ".lock", reason="it is registering a cluster"):
            yield

    @contextmanager
    def locked_instance(self, name: str) -> Iterator[None]:
        """Hold the lock over one instance; its file is removed with the last instance."""
        with exclusive(self.root / f".{name}.lock", reason=f"it is working on cluster {name}"):
            yield


def first_free(taken: set[int]) -> int:
    """Return the lowest number whose addresses neither an instance nor the machine uses."""
    overlaps = []
    for index in range(MAX_INSTANCES):
        if index in taken:
            continue
        plan = Plan(name="x", index=index)
        used = network.in_use(plan.network) or network.in_use(plan.services)
        if used is None:
            return index
        overlaps.append(used)
    message = (
        f"no addresses left: {len(taken)} clusters exist"
        + (f", and this machine routes {', '.join(sorted(set(overlaps)))}" if overlaps else "")
        + "; clusters take their addresses from 198.18.0.0/15"
    )
    raise InstanceError(message)


def registry() -> Registry:
    """Return this machine's instances (``NPU_PLATFORM_CLUSTERS`` overrides the folder)."""
    return Registry(root=Path(os.environ.get("NPU_PLATFORM_CLUSTERS", DEFAULT_ROOT)))
