"""Every query of the dashboards, record and alert finds data on a cluster with what it is about.

One cluster with load, a shared NPU, a full quota, a hot board and a board without a driver;
kube-state-metrics and an inference service are stood in for.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest
import yaml

from ci import chart
from ci.chart import CHART, Json
from ci.cluster.instance import registry
from ci.dashboards import catalogue, promql
from ci.demo.story import NAMESPACE, RESOURCE, sample_pod
from ci.kube import until
from ci.prometheus import Prometheus
from tests.cluster.platform import stand_ins
from tests.cluster.platform.installed import Platform
from tests.cluster.platform.stand_ins import StandIns

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

Measure = Callable[[str], None]

TEAM: Final = "team-a"
SCRAPE_SECONDS: Final = 2.0
#: What Grafana puts into the variables when a dashboard is opened, and an interval that fits.
OPENED: Final = {"__rate_interval": "20s", "__range": "1h", "__interval": "5s"}
STEP: Final = "5s"
_NO_CARD: Final = "boards of this kind share their memory and tell no power"
#: Panels, and queries of panels, that may be empty here, with the reason.
REASONS: Final = {
    "npu-node: Contiguous memory": "the board of this test has an IOMMU",
    "npu-node: Power drawn": _NO_CARD,
    "npu-node: Memory of its own": _NO_CARD,
    "npu-node: Health in the vendor's words": "boards of this kind do not judge themselves",
    "npu-thermal: Failed requests to the API server": "no request of the guard has failed",
    "npu-fleet: Withheld slots, by reason: B": "no NPU is unhealthy",
    "npu-node: Clock: D": "plugin.heat.clampFrequency is off",
    **{
        f"{uid.removesuffix('.json')}: variable cluster": "one cluster alone has no such label"
        for uid in catalogue.dashboards()
    },
}
#: Series that rules read and nobody may have here, with the reason.
ABSENT_SERIES: Final = {
    "npu_thermal_guard_api_errors_total": "no request of the guard has failed",
    "npu_telemetry_last_success_timestamp_seconds": "boards of this kind have no such tool",
    "npu_vendor_health": "boards of this kind do not judge themselves",
    "npu_device_plugin_clamped_hertz": "plugin.heat.clampFrequency is off",
    "npu_device_plugin_clamp_failures_total": "plugin.heat.clampFrequency is off",
    "npu_device_plugin_driver_registered": "plugin.mode is devicePlugin",
    "npu_device_plugin_driver_registrations_total": "plugin.mode is devicePlugin",
    "npu_thermal_guard_published_devices": "plugin.mode is devicePlugin",
}


@dataclass(slots=True, kw_only=True)
class Scene:
    """The cluster with its Prometheus; ``samples`` is the most that each thing has shown."""

    platform: Platform
    prometheus: Prometheus
    witnesses: StandIns
    began: float
    samples: dict[str, int] = field(default_factory=dict)

    def expression(self, text: str) -> str:
        """Return a query as Grafana would put it when a dashboard is opened, choosing all."""
        chosen = dict.fromkeys(promql.variables(text), ".*")
        return promql.replaced(text, chosen | OPENED)

    def count(self, text: str, *, instant: bool = False) -> int:
        """Return how many samples a query has now, or since the scene began."""
        if instant:
            return len(self.prometheus.query(self.expression(text)))
        series = self.prometheus.query_range(self.expression(text), since=self.began, step=STEP)
        return sum(len(one["values"]) for one in series)

    def look(self) -> None:
        """Put every query of every dashboard, and keep the largest number of samples."""
        for place, text, instant in queries():
            self.keep(place, self.count(text, instant=instant))
        for place, selector, label in variables():
            series = self.prometheus.query_range(
                f"count by ({label}) ({self.expression(selector)})", since=self.began, step=STEP
            )
            self.keep(place, len([one for one in series if label in one["metric"]]))

    def keep(self, place: str, samples: int) -> None:
        """Keep the number of samples that a query had, if it is the largest so far."""
        self.samples[place] = max(self.samples.get(place, 0), samples)


def variables() -> Iterator[tuple[str, str, str]]:
    """Yield place, selector and label of the variables."""
    for dashboard in catalogue.dashboards().values():
        for one in dashboard["templating"]["list"]:
            if one["type"] == "query":
                call = one["query"]["query"].removeprefix("label_values(")
                selector, _, _ = call.rpartition(", ")
                yield f"{dashboard['uid']}: variable {one['name']}", selector, one["name"]


def queries() -> Iterator[tuple[str, str, bool]]:
    """Yield place, query and whether it is for an instant: panels and annotations."""
    for dashboard in catalogue.dashboards().values():
        uid = dashboard["uid"]
        for title, _, target in promql.targets(dashboard):
            yield f"{uid}: {title}: {target['refId']}", target["expr"], target["instant"]
        for one in dashboard["annotations"]["list"]:
            if "expr" in one:
                yield f"{uid}: annotation {one['name']}", one["expr"], False


def rules() -> Json:
    """Return the rules as the chart renders them, evaluated as often as is scraped here."""
    values = {
        "monitoring": {"enabled": True, "skipApiCheck": True, "rules": {"interval": "2s"}},
        "plugin": {"sharing": {"slots": 2}},
    }
    (found,) = [
        item
        for item in chart.objects(chart.render(values=values))
        if item["kind"] == "PrometheusRule"
    ]
    spec: Json = found["spec"]
    return spec


def pod(name: str, node: str) -> Json:
    """Return the sample Pod, for a node."""
    made: Json = sample_pod(name=name)
    made["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    return made


def create(platform: Platform, namespace: str, made: Json) -> None:
    """Create a Pod."""
    platform.kube.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(made))


def await_running(platform: Platform, namespace: str, name: str) -> None:
    """Wait until a Pod runs."""
    until(
        lambda: platform.kube.get("pod", name, "-n", namespace)["status"].get("phase"),
        lambda phase: phase == "Running",
        seconds=90,
        what=f"{namespace}/{name} runs",
    )


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """A shared busy board, a hot one used by nobody's Pod, one without a driver, a full quota."""
    shared, hot = platform.boards
    quota = f'[{{"namespace":"{TEAM}","createNamespace":true,"hard":{{"requests.{RESOURCE}":2}}}}]'
    platform.change(
        "--set=plugin.sharing.slots=2",
        f"--set=simulator.boards.nodes.{platform.bare}=rk3588-unbound",
        f"--set-json=quotas={quota}",
    )
    platform.offers("2")
    instance = registry().read(platform.cluster.name)
    assert instance is not None
    witnesses = StandIns(
        kube=platform.kube,
        address=str(instance.plan.host_address),
        replicas={(TEAM, "detector"): "detector", ("default", "reader"): "reader"},
        scalers=tuple(stand_ins.autoscaler(TEAM, "detector", wants=4, has=1, most=6)),
    )
    server = Prometheus.beside(platform.cluster)
    try:
        with witnesses.serving() as others:
            create(platform, TEAM, pod("detector", shared))
            create(platform, "default", pod("reader", shared))
            # It counts against the quota and waits: no node of this name offers an NPU.
            create(platform, TEAM, pod("waiting", platform.bare))
            platform.hold(hot, 84.0)
            for namespace, name in ((TEAM, "detector"), ("default", "reader")):
                await_running(platform, namespace, name)
            witnesses.look()
            began = time.time()
            server.start(
                platform.kube.items("pods", "-n", NAMESPACE),
                scrape_seconds=SCRAPE_SECONDS,
                rules=rules(),
                others=others,
            )
            yield Scene(platform=platform, prometheus=server, witnesses=witnesses, began=began)
    finally:
        server.stop()
        platform.release(hot)
        platform.kube.delete("pod", "reader", "idle", "-n", "default", "--grace-period=1")
        platform.change(
            "--set=plugin.sharing.slots=1",
            f"--set=simulator.boards.nodes.{platform.bare}=none",
            "--set-json=quotas=[]",
        )
        platform.kube.delete("namespace", TEAM, "--wait=false")
        platform.offers_whole()


@pytest.fixture(scope="module")
def seen(scene: Scene) -> Mapping[str, int]:
    """Samples of every query: while a board is hot, and again while a Pod holds it idle."""
    platform, (_, hot) = scene.platform, scene.platform.boards
    platform.await_hot(hot, hot=True, seconds=60)
    scene.witnesses.look()
    until(
        lambda: scene.prometheus.query('ALERTS{alertname="NpuHpaMaxedOutByQuota"}'),
        seconds=60,
        what="rules that were evaluated",
    )
    until(
        lambda: scene.count("npu_device_plugin_slots_withdrawn > 0", instant=True),
        seconds=60,
        what="withdrawn slots",
    )
    time.sleep(3 * SCRAPE_SECONDS)
    scene.look()

    platform.control(hot, celsius=45.0, load=[0.0, 0.0, 0.0])
    platform.await_hot(hot, hot=False, seconds=120)
    create(platform, "default", pod("idle", hot))
    await_running(platform, "default", "idle")
    scene.witnesses.look()
    until(
        lambda: scene.prometheus.query(
            'namespace_pod:npu_pod_core_busy_seconds:rate5m{pod="idle"} < 0.01'
        ),
        seconds=60,
        what="an idle Pod",
    )
    # A bill counts whole minutes: one must have ended.
    until(
        lambda: scene.count("sum_over_time(namespace:npu_held_cores:sum[1h:1m])", instant=True),
        seconds=90,
        what="a minute that can be charged for",
    )
    scene.look()
    return scene.samples


def test_every_panel_has_data(seen: Mapping[str, int], measure: Measure) -> None:
    """No panel, variable or annotation is empty; the list with the samples is printed."""
    panels: Counter[str] = Counter()
    for place, samples in seen.items():
        # Queries of a panel are counted together.
        whole = re.sub(r": [A-Z]$", "", place)
        panels[whole] += samples
    for place, samples in panels.items():
        reason = REASONS.get(place)
        measure(f"{samples:7d}  {place}" + (f" ({reason})" if reason and not samples else ""))
    empty = {place for place, samples in panels.items() if not samples}
    assert empty - set(REASONS) == set()
    assert set(REASONS) <= panels.keys() | seen.keys(), "a reason for what is not there"


def test_no_query_is_empty_for_want_of_a_series(seen: Mapping[str, int]) -> None:
    """Within panels with several queries, each has data, but those about what is not here."""
    missing = {place for place, samples in seen.items() if not samples}
    expected = {place for place in missing if re.sub(r": [A-Z]$", "", place) in REASONS}
    assert missing - expected - set(REASONS) == set()


def test_every_rule_is_evaluated(scene: Scene, seen: Mapping[str, int], measure: Measure) -> None:
    """Rules have no error, records have samples, and alerts read series that exist."""
    found = [rule for group in scene.prometheus.rules() for rule in group["rules"]]
    assert len(found) == sum(len(group["rules"]) for group in rules()["groups"])
    broken = {rule["name"]: rule.get("lastError") for rule in found if rule["health"] != "ok"}
    assert broken == {}
    empty = []
    for rule in found:
        if rule["type"] == "recording":
            samples = scene.count(rule["name"])
            measure(f"{samples:7d}  record {rule['name']}")
            if not samples:
                empty.append(rule["name"])
            continue
        counts = {one.name: scene.count(one.name) for one in promql.selectors(rule["query"])}
        absent = sorted(name for name, samples in counts.items() if not samples)
        reasons = [ABSENT_SERIES[name] for name in absent if name in ABSENT_SERIES]
        said = f" ({'; '.join(reasons)})" if reasons else ""
        measure(f"{sum(counts.values()):7d}  alert {rule['name']}: {rule['state']}{said}")
        empty += [f"{rule['name']}: {name}" for name in absent if name not in ABSENT_SERIES]
    assert empty == []


def test_what_is_withheld_has_its_reason(scene: Scene, seen: Mapping[str, int]) -> None:
    """The hot board is listed as tainted and withdrawn, the other as driverless, with reasons."""
    _, hot = scene.platform.boards
    (panel,) = [
        one
        for one in promql.panels(catalogue.dashboards()["npu-fleet.json"])
        if one["title"] == "Withheld, and why"
    ]
    query = scene.expression(panel["targets"][0]["expr"])
    shown: dict[tuple[str, str], set[str | None]] = {}
    for one in scene.prometheus.query_range(query, since=scene.began, step=STEP):
        labels = one["metric"]
        shown.setdefault((labels["what"], labels["node"]), set()).add(labels.get("reason"))
    # It cools in the course of this, and is tainted while it recovers, too.
    assert shown["node tainted", hot] & {"hot", "critical"}
    assert None not in shown["slots withdrawn", hot]
    assert shown["no working driver", scene.platform.bare] == {"driver_not_bound"}


def test_quota_and_bill(scene: Scene, seen: Mapping[str, int]) -> None:
    """The team's quota is full with a Pod that waits; it is charged half of a shared NPU."""
    value = scene.prometheus.value
    team = f'{{namespace="{TEAM}"}}'
    assert value(f"namespace_resourcequota_resource:npu_quota_used_per_hard:ratio{team}") == 1.0
    assert value(f"namespace:npu_pods_pending:count{team}") == 1.0
    assert value(f"namespace:npu_device_allocation:sum{team}") == 0.5
    assert value(f"namespace:npu_held_cores:sum{team}") == 1.5
    estimated = value(
        f'sum(npu_pod_core_busy_seconds_total{{namespace="{TEAM}",attribution="estimated"}})'
    )
    assert estimated is not None
    assert estimated > 0
    unaccounted = value('sum(npu_unaccounted_core_busy_seconds_total{reason="no_holder"})')
    assert unaccounted is not None
    assert unaccounted > 0


def test_documented_bill(scene: Scene, seen: Mapping[str, int]) -> None:
    """Every query for a bill in the documentation has a result."""
    page = (CHART.parent.parent / "docs" / "monitoring.md").read_text()
    section = page.partition("## A monthly bill")[2].partition("\n## ")[0]
    found = re.findall(r"^\|.*\| `([^`]+)` \|$", section, flags=re.MULTILINE)
    assert len(found) == 5
    for query in found:
        assert scene.prometheus.query(query), query


def test_the_api_server_takes_the_dashboards(scene: Scene) -> None:
    """ConfigMaps with dashboards are neither too large nor malformed."""
    values = {"monitoring": {"enabled": True, "skipApiCheck": True}}
    maps = [
        item
        for item in chart.objects(chart.render(values=values, namespace=NAMESPACE))
        if item["kind"] == "ConfigMap" and "grafana_dashboard" in item["metadata"]["labels"]
    ]
    said = scene.platform.kube.kubectl(
        "apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump_all(maps)
    )
    assert len(said.splitlines()) == len(catalogue.dashboards())


def test_autoscalers_have_their_signals(scene: Scene, seen: Mapping[str, int]) -> None:
    """Queue and busy cores per replica of a service are one number each."""
    value = scene.prometheus.value
    service = f'{{namespace="{TEAM}",service_name="detector"}}'
    assert value(f"namespace_service:npu_inference_queue_depth:sum{service}") == 3.0
    assert value(f"namespace_service:npu_inference_queue_depth:avg{service}") == 3.0
    busy = value(f"namespace_service:npu_pod_core_busy_seconds:avg_rate1m{service}")
    assert busy is not None
    assert busy > 0.1
