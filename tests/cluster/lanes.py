"""Which cluster tests run beside which, and on what kind of cluster.

pytest-xdist gives each of its workers one lane after the other; a worker has one cluster at a time
and keeps it from lane to lane as long as the flavour is the same. Within a lane tests run in the
order written here, one after the other. A file that is not named is a lane of its own, on a cluster
of the default flavour, after those named.

The first lanes start first: the longest belong to the top, so that their waiting is beside the
others' work and not after it. Lanes of one flavour belong together, as a change costs a cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ci import containerd

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavour:
    """What a cluster is made of; absent versions are the defaults of ``ci.cluster``."""

    name: str = ""
    """Part of the cluster's name, empty for the default flavour."""
    kubernetes: str | None = None
    containerd: str | None = None


DEFAULT: Final = Flavour()
#: The oldest Kubernetes of the tests; the chart supports it from 1.30 on.
OLDER: Final = Flavour(name="k134", kubernetes="1.34.4")
#: A container runtime that knows CDI.
CDI: Final = Flavour(name="cdi", containerd=containerd.DEFAULT_VERSION)
#: The same with an enforcer of network policies, which does not go away again.
FENCED: Final = Flavour(name="fenced", containerd=containerd.DEFAULT_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Files of this folder that one worker runs in this order."""

    name: str
    files: tuple[str, ...]
    flavour: Flavour = DEFAULT


LANES: Final = (
    # Waits for four minutes of real time in its first test, while the next lane computes.
    Lane(name="guard", files=("platform/test_guard.py",)),
    # Breaks the cluster itself: first on its worker, before the platform is there.
    Lane(name="cluster", files=("test_cluster.py",)),
    # The platform on the oldest Kubernetes, after the plugin that runs beside a kubelet there.
    # Early, because that Kubernetes may have to be built, while the other worker's tests wait.
    Lane(
        name="older",
        files=("test_plugin_contract_older.py", "test_policy_older.py", "platform/test_upgrade.py"),
        flavour=OLDER,
    ),
    # Installs the platform again and again.
    Lane(name="modes", files=("platform/test_modes.py",), flavour=CDI),
    # The same cluster goes on with one of the modes.
    Lane(name="claims", files=("platform/test_claims.py",), flavour=CDI),
    Lane(name="cdi", files=("platform/test_cdi.py",), flavour=CDI),
    # Waits for five minutes.
    Lane(name="exporter", files=("platform/test_exporter.py",)),
    # A plugin process beside the kubelet: before a platform's plugin is on that cluster.
    Lane(name="contract", files=("test_plugin_contract.py", "test_pools.py")),
    # An API server of its own, for a minute.
    Lane(name="scale", files=("test_scale.py",)),
    # Long ones, which only `make cluster-test-long` runs, in two lanes of about the same length.
    Lane(name="outage", files=("platform/test_outage.py", "platform/test_guard_killed.py")),
    Lane(
        name="claims-long",
        files=("platform/test_claims_long.py", "platform/test_autoscaling_claims.py"),
        flavour=CDI,
    ),
    Lane(name="network", files=("platform/test_network_policies.py",), flavour=FENCED),
    # Builds KEDA, which is three thousand packages, and waits for autoscalers, three minutes.
    Lane(name="autoscaling", files=("platform/test_autoscaling.py",)),
)


def lane_of(file: Path) -> Lane:
    """Return the lane of a test file."""
    name = file.relative_to(HERE).as_posix()
    return next((lane for lane in LANES if name in lane.files), Lane(name=name, files=(name,)))


def position(file: Path) -> tuple[int, int]:
    """Return what to sort files by: unnamed ones come last and keep their order."""
    lane = lane_of(file)
    if lane not in LANES:
        return len(LANES), 0
    return LANES.index(lane), lane.files.index(file.relative_to(HERE).as_posix())


def mistakes() -> Iterator[str]:
    """Yield what is wrong with the table."""
    named = [file for lane in LANES for file in lane.files]
    for file in named:
        if not (HERE / file).is_file():
            yield f"there is no {file}"
    for file in {file for file in named if named.count(file) > 1}:
        yield f"{file} is in two lanes"
