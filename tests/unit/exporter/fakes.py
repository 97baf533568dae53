"""A board, a kubelet and a clock that tests set by hand."""

from collections.abc import Sequence

from exporter.accounting import Account
from exporter.allocation import AllocationWatch
from exporter.board import Board, BoardWatch
from exporter.catalogue import Sample
from exporter.failures import Failures
from exporter.sampler import Sampler
from kubelet.podresources import PodDevices
from npu.model import Clock, CoreLoad, Inventory, Npu, ThermalZone

Labels = dict[str, str]


class Clockwork:
    """A monotonic clock that stands still until it is told to go on."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def npu(identifier: str = "npu0", *, zone: str | None = "npu-thermal", cores: int = 3) -> Npu:
    """Return an RK3588 NPU."""
    return Npu(
        id=identifier,
        vendor="rockchip",
        model="rk3588",
        driver="rknpu",
        mode="drm",
        unit="fdab0000.npu",
        driver_version="0.9.8",
        cores=cores,
        zone=zone,
        zone_is_npu=True,
        board="Test board",
    )


def watch(*npus: Npu, zones: Sequence[ThermalZone] = ()) -> BoardWatch:
    """Return a watch that has seen a board with these parts."""
    made = BoardWatch(lambda: Board(inventory=Inventory(npus=npus), zones=tuple(zones)), Failures())
    made.step()
    return made


def loads(*ratios: float) -> tuple[CoreLoad, ...]:
    """Return the load of cores from 0 on."""
    return tuple(CoreLoad(core=core, ratio=ratio) for core, ratio in enumerate(ratios))


class FakeLister:
    """A kubelet whose answer is ``held``, or whose failure is ``error``."""

    def __init__(self, *held: PodDevices) -> None:
        self.held: tuple[PodDevices, ...] = held
        self.error: Exception | None = None
        self.calls = 0

    def list(self, timeout_seconds: float) -> Sequence[PodDevices]:
        """Answer or fail."""
        assert timeout_seconds > 0
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.held


def held(
    pod: str,
    *ids: str,
    container: str = "main",
    namespace: str = "team-a",
    resource: str = "rockchip.com/npu",
) -> PodDevices:
    """Return what the kubelet tells about one container."""
    return PodDevices(
        namespace=namespace, pod=pod, container=container, resource=resource, device_ids=ids
    )


class Parts:
    """The measuring half of an exporter over fakes; ``load`` is what the driver says or raises."""

    def __init__(self, board: BoardWatch, lister: FakeLister | None = None) -> None:
        self.clock = Clockwork()
        self.lister = lister or FakeLister()
        self.failures = Failures()
        self.account = Account(retention_seconds=300.0)
        self.load: tuple[CoreLoad, ...] | Exception = loads(0.0, 0.0, 0.0)
        self.board = board
        self.allocation = AllocationWatch(
            lister,
            board,
            self.account,
            self.failures,
            prefixes=("rockchip.com/", "huawei.com/"),
            monotonic=self.clock,
        )
        self.sampler = Sampler(
            board,
            self.account,
            self._read,
            self.allocation.pods,
            self.failures,
            monotonic=self.clock,
            unix_time=lambda: 1_700_000_000.0,
        )

    def second(self) -> None:
        """Let a second pass and sample."""
        self.clock.now += 1.0
        self.sampler.step()

    def _read(self, _npu: Npu) -> tuple[CoreLoad, ...]:
        if isinstance(self.load, Exception):
            raise self.load
        return self.load


class FakeClockSource:
    """Clock and power of every NPU; an NPU named in ``broken`` raises."""

    def __init__(self, clock: Clock, *, powered: bool | None, broken: str = "") -> None:
        self._clock, self._powered, self._broken = clock, powered, broken

    def clock(self, npu: Npu) -> Clock:
        """Return the clock."""
        if npu.id == self._broken:
            raise OSError(5, "Input/output error")
        return self._clock

    def powered(self, npu: Npu) -> bool | None:
        """Return the power state."""
        assert npu.id != self._broken
        return self._powered


def values(samples: Sequence[Sample], name: str) -> dict[tuple[str, ...], float]:
    """Return the values of a metric by its label values."""
    return {
        tuple(value for _, value in sample.labels): sample.value
        for sample in samples
        if sample.metric.name == name
    }
