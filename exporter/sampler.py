"""Reads the load of every NPU once a second into the account."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from exporter.accounting import Account, Holders
from exporter.board import BoardWatch
from exporter.failures import Failures
from exporter.worker import Worker
from npu.model import CoreLoad, Npu

PERIOD_SECONDS = 1.0
#: A device whose last good sample is older than this is not being measured.
FRESH_SECONDS = 5.0
_READ_SECONDS = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLoad:
    """What the sampler last saw of one device.

    ``sampled_at`` (monotonic) and ``sampled_unix`` are the times of the last good sample, ``loads``
    its content: empty where the driver's interface has no load by design. ``error`` is why the
    newest attempt failed.
    """

    loads: tuple[CoreLoad, ...] = ()
    sampled_at: float | None = None
    sampled_unix: float | None = None
    error: Exception | None = None


#: Reads the busy share per core of an NPU; raises NpuError.
LoadReader = Callable[[Npu], tuple[CoreLoad, ...]]


class Sampler:
    """Samples all devices of the board; a device that fails or hangs does not stop the others."""

    def __init__(
        self,
        watch: BoardWatch,
        account: Account,
        read_load: LoadReader,
        holders: Callable[[], Holders],
        failures: Failures,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        unix_time: Callable[[], float] = time.time,
    ) -> None:
        self._watch = watch
        self._account = account
        self._read_load = read_load
        self._holders = holders
        self._failures = failures
        self._monotonic = monotonic
        self._unix_time = unix_time
        self._workers: dict[str, Worker[tuple[float, tuple[CoreLoad, ...]]]] = {}
        self._npus: dict[str, Npu] = {}
        self._seen: dict[str, DeviceLoad] = {}

    def step(self) -> None:
        """Take one sample of each device."""
        board = self._watch.current
        if board is None:
            return
        holders = self._holders()
        for npu in board.inventory.npus:
            self._npus[npu.id] = npu
            self._sample(npu.id, holders)

    def seen(self) -> dict[str, DeviceLoad]:
        """Return the state of every device seen since the start, lost ones included."""
        return dict(self._seen)

    def problem(self, device: str) -> str | None:
        """Return why the load of ``device`` is not known now, None where it is."""
        seen = self._seen.get(device, DeviceLoad())
        if seen.sampled_at is not None:
            age = self._monotonic() - seen.sampled_at
            if seen.error is None and age <= FRESH_SECONDS:
                return None
        if seen.error is not None:
            return f"load of {device} cannot be read: {seen.error}"
        return f"load of {device} was not sampled in the last {FRESH_SECONDS:.0f} s"

    def _sample(self, device: str, holders: Holders) -> None:
        worker = self._workers.get(device)
        if worker is None:
            worker = self._workers[device] = Worker(
                f"load-{device}", lambda: self._read(device), monotonic=self._monotonic
            )
        seen = self._seen.get(device, DeviceLoad())
        try:
            at, loads = worker.call(_READ_SECONDS)
        except Exception as error:  # noqa: BLE001 - one device never stops the others
            self._seen[device] = replace(seen, error=error)
            self._failures.report("load", [error], source=device)
            return
        self._account.record(device, at, loads, holders)
        self._seen[device] = DeviceLoad(
            loads=loads, sampled_at=at, sampled_unix=self._unix_time(), error=None
        )
        self._failures.report("load", [], source=device)

    def _read(self, device: str) -> tuple[float, tuple[CoreLoad, ...]]:
        loads = self._read_load(self._npus[device])
        return self._monotonic(), loads
