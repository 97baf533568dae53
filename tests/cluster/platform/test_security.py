"""No node daemon has a token, no container has rights it does not need."""

import pytest

from ci.demo.story import NAMESPACE
from ci.kube import Json
from tests.cluster.platform.installed import COMPONENT, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


def _pods(platform: Platform) -> list[Json]:
    pods = platform.kube.items("pods", "-n", NAMESPACE)
    assert len(pods) >= 3 * len(platform.cluster.nodes) + 2
    return pods


def test_no_daemonset_pod_has_a_token(platform: Platform) -> None:
    """Neither asked for nor mounted: a stolen board steals no credential."""
    daemons = [
        pod
        for pod in _pods(platform)
        if pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet"
    ]

    for pod in daemons:
        name = pod["metadata"]["name"]
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        mounts = [m["mountPath"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]]
        assert TOKENS not in mounts, name
        assert not [v for v in pod["spec"]["volumes"] if "projected" in v], name


def test_containers_run_without_rights(platform: Platform) -> None:
    """No capability (the simulator makes device nodes: MKNOD), unprivileged, read-only root."""
    for pod in _pods(platform):
        component = pod["metadata"]["labels"][COMPONENT]
        for container in pod["spec"]["containers"]:
            context = container["securityContext"]
            capabilities = context["capabilities"]
            assert capabilities["drop"] == ["ALL"], component
            allowed = ["MKNOD"] if component == "simulator" else []
            assert capabilities.get("add", []) == allowed, component
            assert context["readOnlyRootFilesystem"] is True, component
            assert context["allowPrivilegeEscalation"] is False, component
            assert not context.get("privileged", False), component


def test_kernel_agrees(platform: Platform) -> None:
    """The effective capability set of plugin and exporter is empty in the kernel's view."""
    node = platform.boards[0]
    for program in ("plugin", "exporter"):
        pid = platform.processes(node, program)[0]
        status = platform.cluster.exec(node, ["cat", f"/proc/{pid}/status"]).stdout
        assert "CapEff:\t0000000000000000" in status, program
