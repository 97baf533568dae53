"""Nothing is offered, and nothing denied, before it is known what there is and whose."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from daemon.http import Request
from plugin.allocation import Offer
from plugin.claims import Claims
from plugin.dra.drivers import Drivers
from plugin.dra.preparing import Site
from plugin.metrics import Metrics
from plugin.publication import Publication
from tests.unit.plugin.boards import drm_npu
from tests.unit.plugin.dra.test_preparing import DRIVER, offer_of

PAGE = Request(path="/dra", query={}, headers={})


@dataclass
class Board:
    """A board with one NPU."""

    offer: Publication[Offer]
    looked: bool = False


@pytest.fixture
def board() -> Board:
    """One that was not looked at."""
    return Board(Publication(Offer()))


@pytest.fixture
def kubelet_dir() -> Iterator[Path]:
    """A short one: paths of sockets have 107 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@dataclass
class Clock:
    """Monotonic time as a test wants it."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def drivers(board: Board, kubelet_dir: Path, clock: Clock) -> Iterator[Drivers]:
    """The drivers of a node."""
    for folder in ("plugins", "plugins_registry"):
        (kubelet_dir / folder).mkdir()
    made = Drivers(
        kubelet_dir,
        board,
        site=Site(pool="node-1", boot="b1", on_node=str),
        cdi_dir=kubelet_dir,
        claims=Claims(),
        metrics=Metrics(),
        monotonic=clock,
    )
    yield made
    made.stop()


def served(drivers: Drivers, kubelet_dir: Path) -> bool:
    """Take a turn and tell whether the kubelet would find a driver."""
    drivers.step()
    return (kubelet_dir / "plugins_registry" / f"{DRIVER}-reg.sock").is_socket()


def test_whose_a_device_is_is_known_before_it_is_offered(
    board: Board, drivers: Drivers, kubelet_dir: Path
) -> None:
    """A Pod of the other mode may have it: the kubelet could ask for it at once."""
    assert not served(drivers, kubelet_dir)
    board.looked = True
    board.offer.publish(offer_of(drm_npu()))
    assert not served(drivers, kubelet_dir)
    assert drivers.problems() == ["the kubelet has not told yet who holds what"]
    assert drivers.page(PAGE).status == 503

    board.offer.publish(replace(offer_of(drm_npu()), informed=True))

    assert served(drivers, kubelet_dir)
    assert drivers.page(PAGE).status == 200


def test_a_kubelet_that_does_not_tell_is_not_waited_for_long(
    board: Board, drivers: Drivers, kubelet_dir: Path, clock: Clock
) -> None:
    """Its API for that may be off; one that is slow to start is waited for."""
    board.looked = True
    board.offer.publish(offer_of(drm_npu()))
    assert not served(drivers, kubelet_dir)
    asked: list[float] = []
    drivers.ask = lambda: asked.append(clock.now)
    for _ in range(36):
        clock.now += 0.25
        assert not served(drivers, kubelet_dir)
    # The first question may have come to nothing, and would be the only one in that time.
    assert asked == [101.0 + second for second in range(9)]
    clock.now += 2.0
    assert served(drivers, kubelet_dir)


def test_a_page_that_says_nothing_yet_denies_nothing(
    board: Board, drivers: Drivers, kubelet_dir: Path
) -> None:
    """An empty one has the guard take the slices of the node away, and Pods wait for them."""
    assert drivers.page(PAGE).status == 503
    board.looked = True
    board.offer.publish(Offer(informed=True))
    assert not served(drivers, kubelet_dir)
    assert drivers.page(PAGE).status == 200
    assert b'"drivers":[]' in drivers.page(PAGE).body
