"""Drivers with devices, and the ResourceSlices of one node as an API server keeps them."""

from dataclasses import dataclass, field, replace

from thermal.dra.objects import Write
from thermal.dra.offers import OfferedDevice, OfferedDriver
from thermal.dra.pools import pool_writes
from thermal.dra.slices import SliceRecord, slice_record
from thermal.objects import Json, NodeRecord

NODE = NodeRecord(name="n1", uid="uid-1")
DEVICE = OfferedDevice(
    name="npu0",
    state="healthy",
    reason="ok",
    attributes={
        "resource": "rockchip.com/npu",
        "cores": 3,
        "driverVersion": "0.9.8",
        "simulated": False,
    },
)
DRIVER = OfferedDriver(name="npu.rockchip.com", registered=True, devices=(DEVICE,))
HOT = replace(DRIVER, devices=(replace(DEVICE, state="withdrawn", reason="hot"),))


@dataclass
class Store:
    """Slices by name; like the API server it adds versions, and times to taints."""

    items: dict[str, Json] = field(default_factory=dict)
    version: int = 0

    def records(self) -> list[SliceRecord]:
        """Return what a cache keeps of them."""
        return [slice_record(item) for item in self.items.values()]

    def differences(self, driver: OfferedDriver) -> tuple[Write, ...]:
        """Return what is to be written for what a driver offers now."""
        return pool_writes(NODE, self.records(), driver, release="npu")

    def put(self, write: Write) -> None:
        """Do as a write says."""
        self.version += 1
        if write.operation == "delete":
            del self.items[write.name]
            return
        if write.operation == "create":
            name = str(write.body["metadata"]["name"])
            assert name not in self.items
            item = write.body
        else:
            name, item = write.name, self.items[write.name]
            assert write.body["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
            item = item | {"spec": item["spec"] | write.body["spec"]}
        devices = [_timed(device) for device in item["spec"]["devices"]]
        self.items[name] = item | {
            "metadata": item["metadata"] | {"resourceVersion": str(self.version)},
            "spec": item["spec"] | {"devices": devices},
        }

    def publish(self, driver: OfferedDriver) -> None:
        """Write all that differs."""
        for write in self.differences(driver):
            self.put(write)

    def usable(self) -> list[Json] | None:
        """Return the devices that a scheduler sees, None of a pool that is not complete.

        As ``k8s.io/dynamic-resource-allocation/structured`` gathers pools.
        """
        pools = [item["spec"] for item in self.items.values()]
        newest = max((spec["pool"]["generation"] for spec in pools), default=0)
        current = [spec for spec in pools if spec["pool"]["generation"] == newest]
        if not current or len(current) != current[0]["pool"]["resourceSliceCount"]:
            return None
        return [device for spec in current for device in spec["devices"]]


def published(driver: OfferedDriver) -> SliceRecord:
    """Return the one slice of a driver with few devices."""
    store = Store()
    store.publish(driver)
    (record,) = store.records()
    return record


def _timed(device: Json) -> Json:
    if "taints" not in device:
        return device
    return device | {
        "taints": [taint | {"timeAdded": "2026-01-01T00:00:00Z"} for taint in device["taints"]]
    }
