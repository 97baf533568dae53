"""From the first chart to this one and back, while a Pod holds an NPU; what else Helm refuses."""

import json
from pathlib import Path

import pytest

from ci.command import CommandError
from ci.demo.story import CHART, NAMESPACE, RELEASE, RESOURCE, sample_pod
from ci.kube import Json, until
from tests.cluster.platform.installed import HERE, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

EARLIER = Path(__file__).parents[2] / "chart" / "earlier" / "npu-platform-0.0.1.tgz"
FULLNAME = f"{RELEASE}-npu-platform"
SERVICES = ("plugin", "exporter", "guard")


def helm(platform: Platform, *arguments: str, version: str = "4") -> str:
    """Run helm on the release's namespace and wait for the result."""
    return platform.kube.helm(
        *arguments,
        f"--namespace={NAMESPACE}",
        "--wait",
        "--timeout=240s",
        version=version,
        seconds=300,
    )


def chart_of(platform: Platform) -> str:
    """Return name and version of the chart that the release has now."""
    listed = json.loads(platform.kube.helm("list", f"--namespace={NAMESPACE}", "--output=json"))
    return next(str(one["chart"]) for one in listed if one["name"] == RELEASE)


def test_upgrade_and_roll_back(platform: Platform) -> None:
    """The first chart's release becomes this one's, with its own values, and can go back.

    The Pod that holds an NPU through all of it is never touched.
    """
    present = chart_of(platform)
    with platform.pod(sample_pod(name="upgraded")) as pod:
        # Downwards first: the objects are then those that the first chart installs.
        helm(
            platform,
            "upgrade",
            RELEASE,
            str(EARLIER),
            f"--values={HERE / 'values.yaml'}",
            f"--set=simulator.boards.nodes.{platform.bare}=none",
        )
        assert chart_of(platform) == "npu-platform-0.0.1"
        platform.offers()

        helm(platform, "upgrade", RELEASE, str(CHART), "--reuse-values")
        assert chart_of(platform) == present
        platform.offers()
        helm(platform, "rollback", RELEASE)
        assert chart_of(platform) == "npu-platform-0.0.1"
        helm(platform, "upgrade", RELEASE, str(CHART), "--reset-then-reuse-values", version="3")
        platform.install()
        platform.offers()

        now = platform.kube.get("pod", "upgraded", "-n", "default")
        assert now["metadata"]["uid"] == pod["metadata"]["uid"]
        (container,) = now["status"]["containerStatuses"]
        assert (container["restartCount"], container["ready"]) == (0, True)


@pytest.mark.parametrize("version", ["3", "4"])
def test_second_release_is_refused(platform: Platform, version: str) -> None:
    """Helm says which release is there, and nothing of the second one is made."""
    with pytest.raises(CommandError, match="npu-platform-is-installed-once-per-cluster") as told:
        platform.kube.helm("install", "second", str(CHART), "--namespace=default", version=version)
    assert RELEASE in str(told.value)
    made = platform.kube.items(
        "daemonsets,deployments,configmaps", "-n", "default", "-l", "app.kubernetes.io/instance"
    )
    assert made == []


def ghost(name: str, message: str) -> Json:
    """Return a Pod that no node takes, and the status that a kubelet gives a ghost."""
    container = {
        "name": "work",
        "image": "none.invalid/none",
        "resources": {"limits": {RESOURCE: "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeSelector": {"example.com/nowhere": "yes"}, "containers": [container]},
        "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message},
    }


def test_people_who_look_and_ghosts(platform: Platform) -> None:
    """The viewer's role opens the platform's pages and no others; ghosts go, other Pods stay."""
    kube = platform.kube
    group = ("--as=somebody", "--as-group=on-call")
    names = ("of-a-reboot", "of-something-else")
    messages = (f"cannot allocate unhealthy devices {RESOURCE}", "no room for nvidia.com/gpu")
    try:
        platform.install(
            "viewer.subjects[0].kind=Group",
            "viewer.subjects[0].name=on-call",
            "ghosts.enabled=true",
            "ghosts.withoutController=true",
        )
        exporter = platform.component("exporter", platform.boards[0])["metadata"]["name"]
        page = f"/api/v1/namespaces/{NAMESPACE}/pods/{exporter}:8080/proxy/metrics"
        assert "npu_info" in kube.kubectl("get", "--raw", page, *group)
        assert kube.kubectl("get", "nodes,pods,resourcequotas", "-A", *group)
        for refused in (("get", "secrets", "-A"), ("delete", "pod", exporter, "-n", NAMESPACE)):
            with pytest.raises(CommandError, match="forbidden"):
                kube.kubectl(*refused, *group)

        for name, message in zip(names, messages, strict=True):
            pod = ghost(name, message)
            kube.apply(pod)
            patch = json.dumps({"status": pod["status"]})
            kube.kubectl(
                *("patch", "pod", name, "-n", "default", "--subresource=status", f"--patch={patch}")
            )
        made = ("create", "job", "sweep", f"--from=cronjob/{FULLNAME}-ghosts", "-n", NAMESPACE)
        kube.kubectl(*made)
        until(
            lambda: kube.get("job", "sweep", "-n", NAMESPACE)["status"].get("succeeded"),
            seconds=60,
            what="the ghosts are swept",
        )
        left = {pod["metadata"]["name"] for pod in kube.items("pods", "-n", "default")}
        assert left & set(names) == {"of-something-else"}
    finally:
        kube.delete("pod", *names, "-n", "default", "--grace-period=1")
        kube.delete("job", "sweep", "-n", NAMESPACE)
        platform.install()
