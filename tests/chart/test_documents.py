"""Manifests in the documentation are what Kubernetes accepts."""

import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from ci import peer_crds
from ci.chart import CHART, KUBERNETES_VERSIONS, Json
from thermal.names import INVENTORY_LABELS

DOCS = CHART.parent.parent / "docs"
RESOURCES = {"rockchip.com/npu", "rockchip.com/npu-rocket"}
#: Examples of what older versions do not have.
OF_THE_NEWEST = {"resource-claim.yaml"}
_BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def manifests(file: Path) -> Iterator[Json]:
    """Yield the whole objects of an example, or of the blocks of a page."""
    text = file.read_text()
    for block in [text] if file.suffix == ".yaml" else _BLOCK.findall(text):
        for item in yaml.safe_load_all(block):
            if isinstance(item, dict) and "kind" in item:
                yield item


#: Other examples are configuration of other programs.
FILES = [
    file
    for file in (
        DOCS / "workloads.md",
        DOCS / "scheduling.md",
        *sorted((DOCS / "examples").rglob("*.yaml")),
    )
    if any(manifests(file))
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("kubernetes", KUBERNETES_VERSIONS)
def test_manifests_are_valid(file: Path, kubernetes: str) -> None:
    """Every field exists in the oldest and the newest version that is supported."""
    if file.name in OF_THE_NEWEST and kubernetes != KUBERNETES_VERSIONS[-1]:
        return
    for item in manifests(file):
        if peer_crds.group(item) not in peer_crds.SOURCES:
            kubernetes_validate.validate(item, kubernetes, strict=True)


def test_objects_of_neighbours_are_valid() -> None:
    """Their own schemas decide; a field that is not there would be dropped in silence."""
    found = [
        item
        for file in FILES
        for item in manifests(file)
        if peer_crds.group(item) in peer_crds.SOURCES
    ]
    assert len(found) == 8
    for item in found:
        jsonschema.validate(item["spec"], peer_crds.schema(item))


def test_labels_of_examples_are_those_that_the_guard_sets() -> None:
    """An affinity to a label that nobody sets waits for ever."""
    text = "".join((DOCS / name).read_text() for name in ("scheduling.md", "examples/kueue.yaml"))
    used = set(re.findall(r"(?:rockchip|huawei)\.com/npu-[a-z-]+(?=[:,}`])", text))
    assert used
    assert used <= INVENTORY_LABELS


def test_examples_are_found() -> None:
    """A page without a manifest would pass unseen."""
    assert {"workloads.md", "doctor.yaml", "sample-pod.yaml"} <= {file.name for file in FILES}


def test_workloads_ask_and_are_replaced_one_by_one() -> None:
    """What the page's rules say holds for its manifests."""
    found = list(manifests(DOCS / "workloads.md"))
    assert len(found) == 5
    for item in found:
        pod = item["spec"]["template"]["spec"] if item["kind"] == "Deployment" else item["spec"]
        limits = pod["containers"][0]["resources"]["limits"]
        assert [limits[name] for name in RESOURCES & set(limits)] == [1]
        assert "initContainers" not in pod
        if item["kind"] == "Deployment":
            assert item["spec"]["strategy"] == {"type": "Recreate"}
