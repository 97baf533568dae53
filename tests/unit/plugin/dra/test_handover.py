"""Holders of both modes are seen in either."""

from kubelet.podresources import PodDevices
from plugin.devices import DeviceTable, Slot
from plugin.dra.handover import Translator


def held(resource: str, *ids: str, dynamic: bool) -> PodDevices:
    """Return what a container holds."""
    return PodDevices(
        namespace="n", pod="p", container="c", resource=resource, device_ids=ids, dynamic=dynamic
    )


ENTRIES = (
    held("rockchip.com/npu", "npu0", dynamic=False),
    held("npu.rockchip.com", "npu1", "npu1-s3", "npu2-s0", "npu9", dynamic=True),
    held("gpu.example.com", "gpu0", dynamic=True),
    held("example.com/fpga", "f0", dynamic=False),
)
TABLE = DeviceTable(
    slots=tuple(
        Slot(id=name, device=name[:4], resource=resource, state="healthy", reason="ok")
        for name, resource in (
            ("npu0", "rockchip.com/npu"),
            ("npu1", "rockchip.com/npu"),
            ("npu2-s0", "x/npu.shared"),
        )
    )
)


def translator(*, dra: bool) -> Translator:
    """Return one for a mode."""
    return Translator(dra=dra, ours="rockchip.com/npu".__eq__, table=lambda: TABLE)


def test_claims_are_named_by_resource() -> None:
    """One driver may serve several resources; Pods of the device plugin block their NPU.

    What an NPU was divided into before belongs to what it is divided into now.
    """
    one = translator(dra=True)

    found = [(entry.resource, entry.device_ids) for entry in one(ENTRIES)]

    assert found == [("rockchip.com/npu", ("npu1", "npu1-s3")), ("x/npu.shared", ("npu2-s0",))]
    assert one.elsewhere == {"npu0"}


def test_pods_with_claims_block_the_device_plugin() -> None:
    """Until they end."""
    one = translator(dra=False)

    assert one(ENTRIES) == ENTRIES[:1]
    assert one.elsewhere == {"npu1", "npu2", "npu9"}
    one(ENTRIES[:1])
    assert one.elsewhere == frozenset()
