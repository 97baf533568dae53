"""The admission policy on the oldest Kubernetes tested: the same fence, the same words."""

from collections.abc import Iterator

import pytest

from ci.cluster import Cluster
from ci.demo.story import CHART, NAMESPACE, RELEASE, namespace_manifest
from ci.kube import Kube, until
from tests.cluster.platform.test_policy import assert_fenced, assert_type_checked

POLICY = "templates/guard/admission-policy.yaml"
ACCOUNT = "templates/guard/serviceaccount.yaml"


@pytest.fixture
def fenced(kube: Kube) -> Iterator[str]:
    """Apply the policy and the guard's account alone, make that one cluster-admin; its name."""
    kube.kubectl("apply", "-f", "-", stdin=namespace_manifest())
    templates = [f"--show-only={name}" for name in (POLICY, ACCOUNT)]
    text = kube.helm("template", RELEASE, str(CHART), f"--namespace={NAMESPACE}", *templates)
    kube.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=text)
    (account,) = [
        item["metadata"]["name"]
        for item in kube.items("serviceaccounts", "-n", NAMESPACE)
        if item["metadata"]["name"] != "default"
    ]
    kube.kubectl(
        *("create", "clusterrolebinding", "policy-test", "--clusterrole=cluster-admin"),
        f"--serviceaccount={NAMESPACE}:{account}",
    )
    yield f"system:serviceaccount:{NAMESPACE}:{account}"
    kube.delete("clusterrolebinding", "policy-test")
    kube.kubectl("delete", "-n", NAMESPACE, "-f", "-", stdin=text)
    kube.delete("namespace", NAMESPACE)


def test_fence_holds_and_type_checks(kube: Kube, cluster: Cluster, fenced: str) -> None:
    """Type-checked without a warning, and in force after some seconds, also for cluster-admin."""
    assert_type_checked(kube)
    node = cluster.nodes[0]

    def refused() -> bool:
        try:
            kube.kubectl("label", "node", node, "a=b", "--dry-run=server", f"--as={fenced}")
        except Exception as error:
            if "ValidatingAdmissionPolicy" in str(error):
                return True
            raise
        return False

    until(refused, seconds=60, what="a refusal by the new policy")
    assert_fenced(kube, fenced, node)
