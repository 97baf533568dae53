"""The kubelet's answer becomes one entry per container and resource."""

from hypothesis import example, given
from hypothesis import strategies as st

from kubelet._proto.podresources_v1_pb2 import ListPodResourcesResponse
from kubelet.podresources import HeldClaim, PodDevices, merge


def test_entries_per_device_and_numa_node_are_merged() -> None:
    """Identifiers appear once, sorted by number."""
    response = ListPodResourcesResponse()
    container = response.pod_resources.add(name="p", namespace="n").containers.add(name="c")
    for identifier in ("npu10", "npu2", "npu2"):
        container.devices.add(resource_name="rockchip.com/npu", device_ids=[identifier])
    container.devices.add(resource_name="example.com/other", device_ids=["x"])

    assert merge(response) == (
        PodDevices(
            namespace="n", pod="p", container="c", resource="example.com/other", device_ids=("x",)
        ),
        PodDevices(
            namespace="n",
            pod="p",
            container="c",
            resource="rockchip.com/npu",
            device_ids=("npu2", "npu10"),
        ),
    )


def test_containers_without_devices_give_nothing() -> None:
    """Every Pod of the node is in the answer; most hold nothing."""
    response = ListPodResourcesResponse()
    container = response.pod_resources.add(name="p", namespace="n").containers.add(name="c")
    container.devices.add(resource_name="rockchip.com/npu")

    assert merge(response) == ()


def test_devices_of_claims_are_entries_of_their_driver() -> None:
    """Dynamic Resource Allocation tells driver and device; two claims of a container are one."""
    response = ListPodResourcesResponse()
    container = response.pod_resources.add(name="p", namespace="n").containers.add(name="c")
    for claim, device in (("a", "npu1"), ("b", "npu0")):
        resources = container.dynamic_resources.add(claim_name=claim, claim_namespace="n")
        told = resources.claim_resources.add(
            driver_name="npu.example.com", pool_name="node1", device_name=device
        )
        told.cdi_devices.add(name=f"npu.example.com/claim={claim}")

    (merged,) = merge(response)

    assert merged == PodDevices(
        namespace="n",
        pod="p",
        container="c",
        resource="npu.example.com",
        device_ids=("npu0", "npu1"),
        dynamic=True,
        claims=tuple(
            HeldClaim(
                namespace="n",
                name=name,
                device=device,
                cdi_names=(f"npu.example.com/claim={name}",),
            )
            for name, device in (("a", "npu1"), ("b", "npu0"))
        ),
    )


names = st.sampled_from(["a", "b"])


@given(st.lists(st.tuples(names, names, names, st.lists(st.text(max_size=4), max_size=3))))
@example([("a", "a", "a", ["¹"])])
def test_no_identifier_is_lost_or_doubled(
    entries: list[tuple[str, str, str, list[str]]],
) -> None:
    """However the kubelet splits its answer, the sets of identifiers are the same."""
    response = ListPodResourcesResponse()
    expected: dict[tuple[str, str, str], set[str]] = {}
    for pod, container, resource, ids in entries:
        added = response.pod_resources.add(name=pod, namespace="n").containers.add(name=container)
        added.devices.add(resource_name=resource, device_ids=ids)
        expected.setdefault((pod, container, resource), set()).update(ids)

    merged = merge(response)

    found = {(e.pod, e.container, e.resource): set(e.device_ids) for e in merged}
    assert found == {key: ids for key, ids in expected.items() if ids}
    assert all(len(set(e.device_ids)) == len(e.device_ids) for e in merged)


def test_identifiers_of_other_plugins_may_be_anything() -> None:
    """Endless digits are sorted like any other text."""
    identifiers = ["9" * 5000, "", "\u0663", "npu2", "npu10"]
    response = ListPodResourcesResponse()
    container = response.pod_resources.add(name="a", namespace="b").containers.add(name="c")
    container.devices.add(resource_name="x.y/z", device_ids=identifiers)

    (merged,) = merge(response)

    assert sorted(merged.device_ids) == sorted(identifiers)
    assert merged.device_ids.index("npu2") < merged.device_ids.index("npu10")
