"""The steps of the demonstration, against any cluster that has the images.

Nothing is asserted that a visitor could not look up with kubectl and curl; each step says what it
saw.
"""

import copy
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from ci.command import CommandError
from ci.demo.report import Report
from ci.kube import Json, Kube, until
from ci.patience import factor, patient
from npu.names import METRIC_CORE_BUSY, METRIC_CORE_SAMPLED, METRIC_TEMPERATURE

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts" / "npu-platform"
RELEASE: Final = "npu"
NAMESPACE: Final = "npu-platform"
RESOURCE: Final = "rockchip.com/npu"
HOT_TAINT: Final = "thermal.npu-platform.io/hot"
_COMPONENT: Final = "app.kubernetes.io/component"
_PLATFORM: Final = "app.kubernetes.io/part-of=npu-platform"
_LOAD_SEEN: Final = 0.5
_LOAD_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The demonstration on one cluster; ``values`` are extra ``--set`` pairs for helm."""

    kube: Kube
    report: Report
    values: tuple[str, ...] = ()

    def spare_real_boards(self) -> None:
        """Raise CommandError where the platform serves real boards on this cluster.

        Under whatever name, and however it was installed: simulated boards would be offered in
        their place. Somebody who has set KUBECONFIG for other work need not mean that.
        """
        components: dict[tuple[str, str], set[str]] = {}
        for item in self.kube.items("daemonsets", "-A", "-l", _PLATFORM):
            meta = item["metadata"]
            release = meta["labels"].get("app.kubernetes.io/instance", ""), meta["namespace"]
            components.setdefault(release, set()).add(meta["labels"].get(_COMPONENT, ""))
        for (name, namespace), found in components.items():
            if "simulator" not in found:
                raise CommandError(
                    f"release {name} in namespace {namespace} is for real boards, and the "
                    "demonstration would put simulated ones in their place. For a cluster of its "
                    "own: env -u KUBECONFIG -u CONTEXT make demo"
                )

    def install(self) -> None:
        """Install the chart and wait until every Pod of it is ready."""
        with self.report.step("helm install") as step:
            self.kube.kubectl("apply", "-f", "-", stdin=namespace_manifest())
            self.kube.helm(
                "upgrade",
                "--install",
                RELEASE,
                str(CHART),
                f"--namespace={NAMESPACE}",
                f"--values={CHART / 'values-demo.yaml'}",
                *(f"--set={pair}" for pair in (*patient_probes(), *self.values)),
                "--wait",
                f"--timeout={patient(180):.0f}s",
                seconds=240,
            )
            pods = self.kube.items("pods", "-n", NAMESPACE)
            step.found = f"{len(pods)} Pods ready: plugin, exporter, guard, simulator"

    def advertised(self) -> None:
        """Wait until every node offers its NPU."""
        with self.report.step(f"every node offers {RESOURCE}") as step:
            offers = until(
                lambda: self.kube.allocatable(RESOURCE),
                lambda seen: bool(seen) and set(seen.values()) == {"1"},
                seconds=60,
                what=f"allocatable {RESOURCE}: 1 on each node",
            )
            step.found = ", ".join(f"{node}: {count}" for node, count in sorted(offers.items()))

    def sample_gets_npu(self) -> str:
        """Run the sample Pod; return the node it landed on."""
        with self.report.step("a sample Pod gets an NPU") as step:
            self.kube.delete("pod", "npu-sample", "npu-next", "-n", "default")
            # The last run may have left a board warm: begin where new work is welcome.
            until(self._hot_nodes, lambda hot: not hot, seconds=120, what="no node is tainted hot")
            self._run_pod(sample_pod())
            node = str(self.kube.get("pod", "npu-sample", "-n", "default")["spec"]["nodeName"])
            said = until(
                lambda: self.kube.kubectl("logs", "npu-sample", "-n", "default"),
                seconds=20,
                what="the sample Pod's report",
            )
            step.found = f"on {node}: {said.splitlines()[0]}"
        return node

    def load_rises(self, node: str) -> None:
        """Wait until the exporter of ``node`` counts busy cores."""
        with self.report.step("its load shows") as step:
            share = until(
                lambda: self._load(node),
                lambda seen: seen > _LOAD_SEEN,
                seconds=30,
                what=f"the NPU of {node} above {_LOAD_SEEN:.0%} load",
            )
            step.found = f"{share:.0%} of all cores"

    def _load(self, node: str) -> float:
        """Return busy over sampled core seconds of ``node`` over the next two seconds."""
        first = total(self._exposition(node))
        time.sleep(_LOAD_SECONDS)
        second = total(self._exposition(node))
        busy, sampled = (
            second.get(name, 0.0) - first.get(name, 0.0)
            for name in (METRIC_CORE_BUSY, METRIC_CORE_SAMPLED)
        )
        return busy / sampled if sampled else 0.0

    def node_gets_hot(self, node: str) -> None:
        """Wait until the guard taints ``node``."""
        with self.report.step("the board heats up, the guard taints the node") as step:
            taints = until(
                lambda: self.kube.taints(node),
                lambda seen: HOT_TAINT in seen,
                seconds=120,
                what=f"taint {HOT_TAINT} on {node}",
            )
            taint = taints[HOT_TAINT]
            step.found = (
                f"{HOT_TAINT}={taint.get('value')}:{taint['effect']} "
                f"at {self._celsius(node):.1f} °C"
            )

    def next_pod_avoids(self, hot: str) -> None:
        """End the sample; a Pod that prefers the hot node runs elsewhere."""
        with self.report.step("the next NPU Pod prefers that node and avoids it") as step:
            self.kube.delete("pod", "npu-sample", "-n", "default")
            self._run_pod(sample_pod(name="npu-next", prefers=hot))
            node = self.kube.get("pod", "npu-next", "-n", "default")["spec"]["nodeName"]
            if node == hot:
                raise CommandError(f"npu-next runs on {hot}, which is tainted")
            self.kube.delete("pod", "npu-next", "-n", "default")
            step.found = f"runs on {node}"

    def node_cools(self, node: str) -> None:
        """Wait until the guard takes the taint away."""
        with self.report.step("the board cools, the taint goes") as step:
            until(
                lambda: self.kube.taints(node),
                lambda seen: HOT_TAINT not in seen,
                seconds=180,
                what=f"{node} without {HOT_TAINT}",
            )
            step.found = f"{node} is open again at {self._celsius(node):.1f} °C"

    def _celsius(self, node: str) -> float:
        return until(
            lambda: total(self._exposition(node)).get(METRIC_TEMPERATURE, 0.0),
            seconds=20,
            what=f"a temperature of {node}",
        )

    def _exposition(self, node: str) -> str:
        return self.kube.pod_http(self.exporter(node), "/metrics")

    def exporter(self, node: str) -> Json:
        """Return the exporter Pod of ``node``."""
        return self.kube.pod_of(NAMESPACE, f"{_COMPONENT}=exporter", node)

    def _hot_nodes(self) -> list[str]:
        return [
            node["metadata"]["name"]
            for node in self.kube.items("nodes")
            if any(taint["key"] == HOT_TAINT for taint in node["spec"].get("taints", []))
        ]

    def _run_pod(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        self.kube.kubectl("apply", "-n", "default", "-f", "-", stdin=yaml.safe_dump(pod))
        until(
            lambda: self.kube.get("pod", name, "-n", "default")["status"].get("phase"),
            lambda phase: phase == "Running",
            seconds=60,
            what=f"Pod {name} running",
        )


def patient_probes() -> tuple[str, ...]:
    """Return values that keep the kubelet from ending slow starters, none on ordinary machines.

    All services start at once; on a slow machine none would be done before the first is ended,
    and begin again.
    """
    if factor() <= 1:
        return ()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    return tuple(
        f"{service}.probes.{kind}.failureThreshold="
        f"{patient(values[service]['probes'][kind]['failureThreshold']):.0f}"
        for service in ("plugin", "exporter", "guard", "simulator")
        for kind in ("startup", "liveness")
    )


def sample_pod(*, name: str = "npu-sample", prefers: str | None = None) -> Json:
    """Return the documented sample Pod, perhaps with a preference for a node."""
    pod = copy.deepcopy(yaml.safe_load((ROOT / "docs/examples/sample-pod.yaml").read_text()))
    pod["metadata"]["name"] = name
    if prefers is not None:
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [prefers]}
        preference = {"weight": 100, "preference": {"matchExpressions": [term]}}
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
        }
    return pod


def total(exposition: str) -> dict[str, float]:
    """Return the sum of each metric of an exposition over all its labels."""
    found: dict[str, float] = {}
    for match in re.finditer(r"^(\w+)(?:\{.*\})? (\S+)$", exposition, re.MULTILINE):
        found[match[1]] = found.get(match[1], 0.0) + float(match[2])
    return found


def namespace_manifest() -> str:
    """Return the release's namespace with the Pod security level it needs."""
    # The node daemons mount host paths, which the baseline Pod security level forbids.
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    item = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": level},
    }
    return yaml.safe_dump(item)
