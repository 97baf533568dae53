"""The platform on the embedded cluster, as the tests of this folder use it."""

import copy
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from ci.cluster import Cluster
from ci.command import CommandError
from ci.demo.story import CHART, HOT_TAINT, NAMESPACE, RELEASE, RESOURCE, sample_pod
from ci.kube import Json, Kube, until
from kubectl_npu.__main__ import main
from kubectl_npu.client import failure

HERE: Final = Path(__file__).parent
COMPONENT: Final = "app.kubernetes.io/component"
#: Annotations, labels and taints of the guard begin with this.
OWN: Final = "thermal.npu-platform.io/"
#: Temperatures of a board for the guard: above and below its thresholds.
HOT: Final = 84.0
COOL: Final = 45.0
BUSY: Final = "npu_core_busy_seconds_total"
SAMPLED: Final = "npu_core_sampled_seconds_total"

#: ``python -m plugin doctor`` with its exit code as the last line: kubectl hides the output of a
#: command that fails.
RUN: Final = "import sys; from plugin.main import main; print(main(['doctor', *sys.argv[1:]]))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """The installed platform: ``boards`` are nodes with a simulated board, ``bare`` has none."""

    cluster: Cluster
    kube: Kube
    boards: tuple[str, ...]
    bare: str

    def install(self, *values: str, quick: bool = True) -> None:
        """Install or change the release; ``quick`` with the short holds of ``values.yaml``."""
        self.kube.helm(
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            f"--namespace={NAMESPACE}",
            f"--values={HERE / ('values.yaml' if quick else 'values-default-timing.yaml')}",
            f"--set=simulator.boards.nodes.{self.bare}=none",
            *(f"--set={pair}" for pair in values),
            "--wait",
            "--timeout=240s",
            seconds=300,
        )

    def change(self, *values: str) -> None:
        """Change values of the release as documented (``--set…`` options): all else stays."""
        self.kube.helm(
            "upgrade",
            RELEASE,
            str(CHART),
            f"--namespace={NAMESPACE}",
            "--reset-then-reuse-values",
            *values,
            "--wait",
            "--timeout=200s",
            seconds=240,
        )

    def offers(self, expected: str = "1") -> dict[str, str | None]:
        """Wait until each node with a board offers ``expected`` NPUs; return what all offer."""
        return until(
            lambda: self.kube.allocatable(RESOURCE),
            lambda seen: all(seen[node] == expected for node in self.boards),
            seconds=90,
            what=f"allocatable {RESOURCE}: {expected} on {', '.join(self.boards)}",
        )

    def offers_whole(self) -> None:
        """Wait until each board is offered as one whole NPU and under no other identifier.

        A slot that a Pod held stays listed, and may be given to the next Pod, for a minute after a
        holder that the plugin never saw; node status shows no difference.
        """
        self.offers()
        for node in self.boards:
            until(
                partial(self.allocations, node),
                lambda seen: not any("-s" in device["id"] for device in seen["devices"]),
                seconds=120,
                what=f"whole NPUs only on {node}",
                every=1,
            )

    def allocations(self, node: str) -> Json:
        """Return what the plugin of ``node`` says of its identifiers and their holders."""
        page: Json = json.loads(self.kube.pod_http(self.component("plugin", node), "/allocations"))
        return page

    def accepts(self, *items: Json, namespace: str = "default") -> None:
        """Wait until the API server would take objects: it forgets a policy a moment after."""
        create = ("create", "-n", namespace, "--dry-run=server", "-f", "-")

        def refusal() -> str:
            try:
                self.kube.kubectl(*create, stdin="\n---\n".join(map(json.dumps, items)))
            except CommandError as error:
                return str(error)
            return ""

        until(refusal, lambda said: not said, seconds=60, what="objects that are not refused")

    def component(self, name: str, node: str | None = None) -> Json:
        """Return the one Pod of a component, of ``node`` where there is one per node."""
        return self.kube.pod_of(NAMESPACE, f"{COMPONENT}={name}", node)

    def control(self, node: str, **values: object) -> None:
        """Take over the simulated board of ``node``: see docs/simulator.md for the keys."""
        file = self.cluster.node_board(node) / "control.json"
        fresh = file.with_suffix(".part")
        fresh.write_text(json.dumps(values))
        fresh.rename(file)

    def hold(self, node: str, celsius: float, load: tuple[float, ...] = (0.9, 0.9, 0.9)) -> None:
        """Keep the board of ``node`` at a temperature and a load."""
        self.control(node, celsius=celsius, load=load)

    def cool(self, load: tuple[float, ...] = (0.9, 0.9, 0.9)) -> None:
        """Keep all boards cool, at a load; wait until no Node and no device is closed for heat."""
        for node in self.boards:
            self.hold(node, COOL, load)
        until(
            lambda: [
                *filter(self.hot_taint, self.boards),
                *(item["metadata"]["name"] for item in self.kube.items("devicetaintrules")),
            ],
            lambda closed: not closed,
            seconds=200,
            what="boards that are open to new work",
        )

    def load(self, node: str, *, seconds: float = 2.5) -> dict[str, float]:
        """Return the busy share per core of ``node`` over the next seconds."""
        first = self.metrics(node)
        time.sleep(seconds)
        second = self.metrics(node)
        shares = {}
        for key, sampled in second.get(SAMPLED, {}).items():
            covered = sampled - first.get(SAMPLED, {}).get(key, sampled)
            if covered > 0:
                busy = second[BUSY][key] - first[BUSY][key]
                shares[json.loads(key)["core"]] = busy / covered
        return shares

    def release(self, node: str) -> None:
        """Let allocations drive the board of ``node`` again."""
        (self.cluster.node_board(node) / "control.json").unlink(missing_ok=True)

    def zone(self, node: str) -> Path:
        """Return the directory of the NPU's thermal zone on the board of ``node``."""
        zones = (self.cluster.node_board(node) / "sys/class/thermal").glob("thermal_zone*")
        return next(
            zone.resolve() for zone in zones if (zone / "type").read_text().strip() == "npu-thermal"
        )

    def metrics(self, node: str, component: str = "exporter") -> dict[str, dict[str, float]]:
        """Return the metrics of a component on ``node``: name → labels as JSON → value."""
        text = self.kube.pod_http(self.component(component, node), "/metrics")
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = json.dumps(sample.labels, sort_keys=True)
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def value(
        self, node: str, name: str, component: str = "exporter", **labels: str
    ) -> float | None:
        """Return the sum of a metric's series whose labels include ``labels``, None if none."""
        matching = [
            value
            for key, value in self.metrics(node, component).get(name, {}).items()
            if labels.items() <= json.loads(key).items()
        ]
        return sum(matching) if matching else None

    @contextmanager
    def pod(self, pod: Json, *, phase: str = "Running") -> Iterator[Json]:
        """Run a Pod of the default namespace until ``phase``, and remove it at the end."""
        name = pod["metadata"]["name"]
        self.kube.kubectl("apply", "-n", "default", "-f", "-", stdin=yaml.safe_dump(pod))
        try:
            yield self.await_phase(name, phase)
        finally:
            self.kube.delete("pod", name, "-n", "default", "--grace-period=1")

    def await_phase(self, name: str, phase: str, *, seconds: float = 60) -> Json:
        """Wait until a Pod of the default namespace is in ``phase`` and return it."""
        return until(
            lambda: self.kube.get("pod", name, "-n", "default"),
            lambda seen: seen["status"].get("phase") == phase,
            seconds=seconds,
            what=f"Pod {name} {phase}",
        )

    def scheduler_says(self, name: str) -> str:
        """Wait until the scheduler says why a Pod of the default namespace waits, and return it."""
        return until(
            lambda: why_pending(self.kube.get("pod", name, "-n", "default")),
            seconds=30,
            what=f"verdict of the scheduler on {name}",
        )

    def scale_guards(self, count: int) -> None:
        """Have ``count`` guards, none meaning that nobody guards."""
        guard = ("deployment", "-l", f"{COMPONENT}=guard")
        self.kube.kubectl("scale", *guard, "-n", NAMESPACE, f"--replicas={count}")
        until(
            lambda: self.kube.items("pods", "-n", NAMESPACE, "-l", f"{COMPONENT}=guard"),
            lambda pods: len(pods) == count,
            seconds=90,
            what=f"{count} guards",
        )

    def processes(self, node: str, program: str) -> list[str]:
        """Return the process numbers, in ``node``, of a service (``python -m program``)."""
        found = self.cluster.exec(node, ["pgrep", "-f", "--", f"-m {program}( |$)"])
        pids = found.stdout.split()
        if not pids:
            raise LookupError(f"no process of {program} on {node}: {found.stderr}")
        return pids

    def hot_taint(self, node: str) -> Json | None:
        """Return the guard's taint on ``node``."""
        return self.kube.taints(node).get(HOT_TAINT)

    def overheated(self, node: str) -> str | None:
        """Return the status of the guard's condition on ``node``, None where there is none."""
        conditions = self.kube.node(node)["status"]["conditions"]
        return next((c["status"] for c in conditions if c["type"] == "NPUOverheated"), None)

    def await_hot(self, node: str, *, hot: bool, seconds: float) -> None:
        """Wait until ``node`` has the guard's taint, or has it no more."""
        until(
            lambda: self.hot_taint(node),
            lambda taint: (taint is not None) == hot,
            seconds=seconds,
            what=f"{node} {'with' if hot else 'without'} {HOT_TAINT}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubectlOf:
    """What ``kubectl npu`` asks the cluster with; ``options`` as of its user, ``--as`` for one."""

    kube: Kube
    options: tuple[str, ...] = ()

    def run(self, *arguments: str) -> str:
        """Run kubectl; raises KubectlError."""
        try:
            return self.kube.kubectl(*self.options, *arguments)
        except CommandError as error:
            raise failure(arguments, str(error)) from error


class NpuCommand:
    """``kubectl npu`` as its user sees it."""

    def __init__(self, platform: Platform, capsys: pytest.CaptureFixture[str]) -> None:
        self.platform = platform
        self.capsys = capsys

    def __call__(self, *arguments: str, user: str = "") -> str:
        """Return output and notes."""
        options = (user,) if user else ()
        main([*arguments], KubectlOf(kube=self.platform.kube, options=options))
        captured = self.capsys.readouterr()
        return captured.out + captured.err

    def items(self, *arguments: str) -> list[Json]:
        """Return the items of its JSON."""
        items: list[Json] = json.loads(self(*arguments, "--output=json"))["items"]
        return items


def npu_pod(name: str, node: str | None = None) -> Json:
    """Return the documented sample Pod, bound to a node by label if given."""
    pod = sample_pod(name=name)
    if node is not None:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return pod


def events(platform: Platform, name: str, *, seconds: float = 20) -> list[Json]:
    """Return what a sample Pod reports, as soon as it is complete."""
    return until(
        lambda: [
            json.loads(line)
            for line in platform.kube.kubectl("logs", name, "-n", "default").splitlines()
            if line.startswith("{")
        ],
        lambda seen: bool(seen) and seen[-1]["event"] == "result",
        seconds=seconds,
        what=f"report of {name}",
    )


def without_npu(pod: Json) -> Json:
    """Return the same Pod without its request for an NPU."""
    changed = copy.deepcopy(pod)
    del changed["spec"]["containers"][0]["resources"]
    return changed


def why_pending(pod: Json) -> str:
    """Return what the scheduler says about a Pod, empty as long as it says nothing."""
    conditions = pod["status"].get("conditions", [])
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def doctor_on(platform: Platform, node: str) -> tuple[bool, str]:
    """Run the doctor in the plugin's own Pod; return whether it was content and what it said."""
    pod = platform.component("plugin", node)["metadata"]["name"]
    options = ["--root=/host", "--config=/etc/npu-platform/plugin.yaml"]
    text = platform.kube.kubectl(
        "exec", pod, "-n", NAMESPACE, "--", "/usr/bin/python3.13", "-I", "-c", RUN, *options
    )
    report, _, code = text.rstrip().rpartition("\n")
    return code == "0", report
