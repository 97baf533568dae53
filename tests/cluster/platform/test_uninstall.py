"""`helm uninstall` leaves nothing, also when every node is tainted."""

import pytest

from ci.demo.story import NAMESPACE, RELEASE
from ci.kube import Json, until
from tests.cluster.platform.installed import OWN, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

KINDS = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings,priorityclasses"
)
NAMESPACED = (
    "daemonsets,deployments,pods,jobs,configmaps,serviceaccounts,roles,rolebindings,leases,secrets"
)


def test_helm_test_passes(platform: Platform) -> None:
    """The chart's own test proves its promises."""
    platform.kube.helm("test", RELEASE, f"--namespace={NAMESPACE}", seconds=300)


def test_uninstall_leaves_nothing(platform: Platform) -> None:
    """With all nodes tainted by us: no taint, label, annotation, condition or object remains."""
    for node in platform.boards:
        platform.hold(node, 84.0)
    for node in platform.boards:
        platform.await_hot(node, hot=True, seconds=90)
    platform.kube.kubectl("taint", "node", "--all", f"{OWN}hot=80:NoSchedule", "--overwrite")

    try:
        platform.kube.helm("uninstall", RELEASE, f"--namespace={NAMESPACE}", "--wait", seconds=400)

        for node in platform.kube.items("nodes"):
            assert _traces(node) == [], node["metadata"]["name"]
        leftovers = until(
            lambda: _leftovers(platform),
            lambda seen: not seen,
            seconds=90,
            what="no object of the release",
        )
        assert leftovers == []
    finally:
        for node in platform.boards:
            platform.release(node)
        platform.install()
        platform.offers()


def _traces(node: Json) -> list[str]:
    meta = node["metadata"]
    found = [t["key"] for t in node["spec"].get("taints", []) if "npu-platform" in t["key"]]
    found += [k for k in meta["labels"] if "rockchip.com" in k or "npu-platform" in k]
    found += [k for k in meta.get("annotations", {}) if "npu-platform" in k]
    found += [c["type"] for c in node["status"]["conditions"] if c["type"] == "NPUOverheated"]
    return found


def _leftovers(platform: Platform) -> list[str]:
    cluster = platform.kube.items(KINDS)
    own = platform.kube.items(NAMESPACED, "-n", NAMESPACE)
    names = [f"{item['kind']}/{item['metadata']['name']}" for item in cluster]
    found = [name for name in names if "npu" in name.lower()]
    found += [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in own
        if item["metadata"]["name"] not in ("default", "kube-root-ca.crt")
    ]
    return found
