"""Few warm nodes are asked themselves, all others of Prometheus."""

from collections.abc import Sequence

from thermal.readings import NodeSample
from thermal.source import Failure, Result, Target
from thermal.warm import WarmSource


class Recorder:
    """A source that remembers whom it was asked for, and fails for some."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.page = NodeSample(hardware=(str(id(self)),))
        self.asked: list[list[str]] = []

    def read(self, targets: Sequence[Target]) -> dict[str, Result]:
        """Answer for all."""
        self.asked.append([target.node for target in targets])
        return {
            target.node: Failure(reason="connect") if target.node in self.failing else self.page
            for target in targets
        }


def test_warm_nodes_are_read_directly() -> None:
    """One that is out of reach comes from Prometheus, at once and for a minute."""
    now = 100.0
    direct, fleet = Recorder("n2"), Recorder()
    warm = WarmSource(direct=direct, fleet=fleet, monotonic=lambda: now)
    targets = [
        Target(node="n1", address="10.0.0.1", warm=True),
        Target(node="n2", address="10.0.0.2", warm=True),
        Target(node="n3", address="10.0.0.3"),
    ]

    results = warm.read(targets)

    assert all(isinstance(results[node], NodeSample) for node in ("n1", "n2", "n3"))
    own = [node for node, result in results.items() if result == direct.page]
    assert (own, direct.asked) == (["n1"], [["n1", "n2"]])
    now += 30.0
    warm.read(targets)
    assert direct.asked[-1] == ["n1"]
    now += 31.0
    direct.failing.clear()
    warm.read(targets[:2])
    assert direct.asked[-1] == ["n1", "n2"]
    assert len(fleet.asked) == 2
