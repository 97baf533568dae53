"""What the whole platform makes of one board, as text: scan, kubelet, exporter and guard."""

import os
import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from exporter.app import Exporter
from exporter.exposition import render
from exporter.settings import Settings
from npu.drivers.rocket import RocketDriver
from npu.host import Host, Reader, read_bounded
from npu.layout import Tree
from npu.registry import DRIVERS
from npu.report import as_text
from npu.scan import driver_of, scan
from npu.thresholds import Settings as Thresholds
from plugin.allocation import AllocationError, grant
from plugin.board import Board
from plugin.config import PluginConfig
from plugin.health import probe
from plugin.looks import Looker
from tests.unit.exporter.fakes import FakeLister
from thermal import exposition
from thermal.inventory import labels_of
from thermal.readings import WANTED, node_sample

_VOLATILE = re.compile(
    r"^(npu_scrape_collector_duration_seconds|npu_last_sample_timestamp_seconds"
    r"|npu_exporter_|process_)"
)
#: Series that are the same on every board, for the golden files' sake.
_USUAL = re.compile(r"^npu_scrape_collector_success\{.*\} 1\.0$")


class TreeHost(Host):
    """A host whose device nodes are those of a tree: making real ones needs a capability."""

    def __init__(self, root: Path, tree: Tree, errors: Mapping[str, int]) -> None:
        super().__init__(root, reader=failing(root, errors))
        self._nodes = tree.nodes

    def device_number(self, path: str) -> tuple[int, int] | None:
        """Return the number of a node of the tree that is still there."""
        super().device_number(path)
        return self._nodes.get(path)


def failing(root: Path, errors: Mapping[str, int]) -> Reader:
    """Return a reader that fails with an errno at some paths, and below them."""

    def read(path: str, limit: int) -> bytes:
        inside = path.removeprefix(str(root))
        for prefix, number in errors.items():
            if inside == prefix or inside.startswith(f"{prefix}/"):
                raise OSError(number, os.strerror(number), path)
        return read_bounded(path, limit)

    return read


def account(host: Host) -> str:
    """Return everything the platform says about a board."""
    text, offer = as_text(host, scan(host)), _offer(host)
    _forget_loads()
    page, samples = _page(host)
    sections = {
        "scan": text,
        "device plugin": "\n".join(offer),
        "exporter": "\n".join(samples),
        "guard": "\n".join(_guard(page)),
    }
    return "".join(f"## {title}\n{text}\n\n" for title, text in sections.items())


def _forget_loads() -> None:
    """Make the next reading of a load by difference the first one, however fast the test runs."""
    for driver in DRIVERS:
        if isinstance(driver, RocketDriver):
            driver._activities.clear()


def _offer(host: Host) -> list[str]:
    looker = Looker(
        host,
        PluginConfig(),
        scan=partial(scan, host),
        probe=lambda npu: probe(host, driver_of(npu), npu),
        load=lambda npu: driver_of(npu).load(host, npu),
    )
    board = Board(PluginConfig(), look=looker.look)
    board.step()
    offer = board.offer.value
    lines: list[str] = []
    for slot in offer.table.slots:
        lines.append(f"{slot.resource} {slot.id} {slot.state} {slot.reason}")
        try:
            given = grant(offer, slot.resource, [slot.id], on_node=host.on_node)
        except AllocationError as error:
            lines.append(f"  refused: {error.reason}")
            continue
        lines += [f"  device {node.host_path} -> {node.container_path}" for node in given.nodes]
        lines += [f"  mount {file.host_path} -> {file.container_path}" for file in given.files]
        lines += [f"  env {name}={value}" for name, value in sorted(given.environment.items())]
    lines += [f"refused {item.what}: {item.why}" for item in board.refused]
    return lines or ["nothing to offer"]


def _page(host: Host) -> tuple[str, list[str]]:
    now = time.monotonic()
    clock = iter(range(10_000))
    exporter = Exporter(host, FakeLister(), Settings(), monotonic=lambda: now + next(clock) * 0.01)
    for loop in exporter.loops:
        loop.step()
    text = render(exporter.scrape())[0].decode()
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    shown = [line for line in samples if not (_VOLATILE.match(line) or _USUAL.match(line))]
    return text, shown


def _guard(page: str) -> list[str]:
    sample = node_sample(exposition.parse(page, WANTED))
    lines = [f"label {key}={value}" for key, value in labels_of(sample.devices).items()]
    for device in sample.devices:
        limits = Thresholds().resolve(model=device.model, trips=sample.trips, simulated=True)
        lines.append(
            f"{device.device}: {device.celsius} °C, clock {device.clock_hertz},"
            f" cores {device.cores}, busy counters {len(device.busy_seconds)}"
        )
        lines.append(
            "  " + ", ".join(f"{name} {value:g}" for name, value in limits.named().items())
        )
    lines.append(f"mitigating {sample.mitigating}, hardware {list(sample.hardware)}")
    lines.append(f"malformed {sample.malformed}")
    return lines
