"""What a scheduler makes of a pool that the guard writes in several ResourceSlices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from ci.cluster import Cluster
from ci.kube import Json, Kube, until
from tests.unit.thermal.dra.pool_facts import DEVICE
from thermal.dra.objects import Objects, Write
from thermal.dra.offers import OfferedDriver
from thermal.dra.pools import pool_writes
from thermal.dra.slices import LABEL, SLICES, slice_record
from thermal.kube import Client
from thermal.objects import NodeRecord

#: A node without a kubelet, as nothing of this is to be started, and a driver that nobody serves.
NODE: Final = "pool-without-a-board"
DRIVER: Final = "pools.test.npu-platform.io"
#: More than two slices hold.
DEVICES: Final = 130
WITHDRAWN: Final = "npu0-s7"
#: All that are left; a claim may have 32 at most.
CLAIMS: Final = {"pool-0": 32, "pool-1": 32, "pool-2": 32, "pool-3": 32, "pool-4": 1}
#: The chart's admission policy is about the guard's account only.
RELEASE: Final = "test-pools"


@pytest.fixture
def node(kube: Kube) -> Iterator[NodeRecord]:
    """A Node that schedulers know."""
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": NODE},
            "status": {
                "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"},
                "capacity": {"cpu": "1", "memory": "1Gi", "pods": "9"},
            },
        }
    )
    yield NodeRecord(name=NODE, uid=kube.node(NODE)["metadata"]["uid"])
    kube.delete("node", NODE)


@pytest.fixture
def published(kube: Kube) -> Iterator[None]:
    """A class of the devices of the driver; in the end neither it nor a slice is left."""
    kube.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        }
    )
    yield
    kube.delete("deviceclass", DRIVER)
    kube.delete("resourceslices", "-l", f"{LABEL}={RELEASE}", "--ignore-not-found")


@pytest.fixture
def put(cluster: Cluster) -> Callable[[Sequence[Write]], None]:
    """Write as the guard does."""
    client = Client.from_kubeconfig(cluster.kubeconfig)
    objects = Objects(client, kind="ResourceSlice", path=SLICES)

    def write(writes: Sequence[Write]) -> None:
        assert [objects.apply(item, 0.0) for item in writes] == ["written"] * len(writes)

    return write


def offer(*, withdrawn: str = "") -> OfferedDriver:
    """Return what a driver with many devices offers."""
    devices = [replace(DEVICE, name=f"npu0-s{number}") for number in range(DEVICES)]
    return OfferedDriver(
        name=DRIVER,
        registered=True,
        devices=tuple(
            replace(device, state="withdrawn", reason="hot") if device.name == withdrawn else device
            for device in devices
        ),
    )


def claim(name: str, count: int) -> Json:
    """Return a claim of so many devices."""
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": count}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "npus", "exactly": exactly}]}},
    }


def pod() -> Json:
    """Return a Pod that needs all of them."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "pool", "image": "localhost/nothing"}],
            "resourceClaims": [{"name": name, "resourceClaimName": name} for name in CLAIMS],
        },
    }


@pytest.mark.usefixtures("published")
def test_a_pool_is_used_when_all_of_a_generation_is_there(
    kube: Kube, node: NodeRecord, put: Callable[[Sequence[Write]], None]
) -> None:
    """And never a mixture of two: then all devices of all slices are to be had but the tainted."""

    def differences(driver: OfferedDriver) -> tuple[Write, ...]:
        items = kube.items("resourceslices", "-l", f"{LABEL}={RELEASE}")
        return pool_writes(node, [slice_record(item) for item in items], driver, release=RELEASE)

    put(differences(offer()))
    assert differences(offer()) == ()
    changed = offer(withdrawn=WITHDRAWN)
    first, *others = differences(changed)
    assert len(others) == 2
    put([first])
    try:
        kube.apply(*(claim(name, count) for name, count in CLAIMS.items()), pod())
        until(
            lambda: kube.get("pod", "pool", "-n", "default")["status"].get("conditions", []),
            lambda seen: any("cannot allocate all claims" in c.get("message", "") for c in seen),
            seconds=60,
            what="a Pod that waits for the rest of the pool",
        )
        # Interrupted here, a guard that looks again goes on with what is left.
        assert [write.name for write in differences(changed)] == [write.name for write in others]
        put(differences(changed))
        assert differences(changed) == ()
        until(
            lambda: kube.get("pod", "pool", "-n", "default")["spec"].get("nodeName"),
            lambda seen: seen == NODE,
            seconds=60,
            what="a Pod with the devices of all slices",
        )
        given = [
            result["device"]
            for name in CLAIMS
            for result in kube.get("resourceclaim", name, "-n", "default")["status"]["allocation"][
                "devices"
            ]["results"]
        ]
        assert len(given) == DEVICES - 1
        assert {*given} == {device.name for device in changed.devices} - {WITHDRAWN}
    finally:
        kube.delete("pod", "pool", "-n", "default", "--grace-period=0", "--force")
        kube.delete("resourceclaim", *CLAIMS, "-n", "default", "--ignore-not-found")
