"""A team: what its quota allows, what it holds, what it makes of it, what that costs."""

from ci.chart import Json
from ci.dashboards.frame import Row, dashboard, variable
from ci.dashboards.palette import BLUE, GREEN, ORANGE, SKY, VERMILION, steps
from ci.dashboards.panels import Values, fixed, lines, link, number, override, table
from ci.dashboards.query import RAW, RECORDED, line, rows

#: Series that name a workload's namespace: recorded ones, scraped ones, those of others.
OURS = f'{RECORDED}, namespace=~"$namespace"'
SCRAPED = f'{RAW}, namespace=~"$namespace"'
POD = "by (cluster, namespace, pod)"
QUOTA = "namespace_resourcequota_resource:npu_quota"
WITHOUT_KSM = "Needs kube-state-metrics"

_TEAM_LINK = link(
    "Namespace",
    "Show this team",
    "/d/npu-team?var-datasource=${datasource}"
    '&var-namespace=${__data.fields["Namespace"]}&${__url_time_range}',
)
_POD_LINK = link(
    "Pod",
    "Show the services of this namespace",
    "/d/npu-service?var-datasource=${datasource}"
    '&var-namespace=${__data.fields["Namespace"]}&${__url_time_range}',
)
_BAR = {"type": "gauge", "mode": "basic"}


def _pending() -> str:
    """Return the Pods with an NPU request that are pending, 1 each."""
    return (
        f"namespace_pod:npu_requests:sum{{{OURS}}} and on (cluster, namespace, pod)"
        f' max {POD} (kube_pod_status_phase{{{OURS}, phase="Pending"}}) == 1'
    )


def _now() -> Row:
    used, hard = f"sum({QUOTA}_used:max{{{OURS}}})", f"sum({QUOTA}_hard:max{{{OURS}}})"
    return Row(
        title="Now",
        panels=[
            number(
                "Quota used",
                "NPUs counted against the quotas of the chosen namespaces, and what they allow.",
                [line(used, "used"), line(hard, "allowed")],
                Values(unit="short", empty="no quota", decimals=0),
                named=True,
            ),
            number(
                "Left in the quota",
                "NPUs that can still be asked for. At 0 new Pods with an NPU are refused.",
                [line(f"{hard} - {used}", "left")],
                Values(
                    unit="short",
                    empty="no quota",
                    decimals=0,
                    thresholds=steps((1, BLUE), base=VERMILION),
                ),
            ),
            number(
                "NPUs held",
                "NPUs that Pods hold; a shared one counts by its parts.",
                [line(f"sum(namespace:npu_device_allocation:sum{{{OURS}}}) or vector(0)", "held")],
                Values(unit="short", empty="none", decimals=1),
                graph=True,
            ),
            number(
                "Busy cores",
                "Cores kept busy by the Pods of the chosen namespaces.",
                [
                    line(
                        f"sum(namespace:npu_pod_core_busy_seconds:rate5m{{{OURS}}}) or vector(0)",
                        "busy",
                    )
                ],
                Values(unit="short", empty="none", decimals=1),
                graph=True,
            ),
            number(
                "Use of what is held",
                "Busy cores over the cores of the NPUs held. 30 to 40 % is all that a program"
                " bound by memory can reach; near 0 % an NPU is held for nothing, or the program"
                " computes on the CPU.",
                [
                    line(
                        f"sum(namespace:npu_pod_core_busy_seconds:rate5m{{{OURS}}})"
                        f" / sum(namespace:npu_held_cores:sum{{{OURS}}})",
                        "use",
                    )
                ],
                Values(unit="percentunit", empty="nothing held", low=0, high=1, decimals=0),
                graph=True,
            ),
            number(
                "Pods waiting",
                "Pending Pods that ask for an NPU. They wait for a free NPU, or for a node that is"
                " not tainted.",
                [line(f"count({_pending()}) or vector(0)", "waiting")],
                Values(unit="short", empty="none", decimals=0, thresholds=steps((1, ORANGE))),
            ),
            number(
                "Longest wait",
                "Age of the oldest Pod among them.",
                [
                    line(
                        f"max(time() - max {POD} (kube_pod_created{{{OURS}}})"
                        f" and on (cluster, namespace, pod) {_pending()})",
                        "oldest",
                    )
                ],
                Values(unit="s", empty="none waits", decimals=0, thresholds=steps((600, ORANGE))),
            ),
            number(
                "Idle Pods",
                "Pods that hold an NPU and used less than 1 % of one core in the last hour.",
                [line(f"count({_idle()}) or vector(0)", "idle")],
                Values(unit="short", empty="none", decimals=0, thresholds=steps((1, ORANGE))),
            ),
        ],
    )


def _idle() -> str:
    return f"""
        avg_over_time(namespace_pod:npu_pod_core_busy_seconds:rate5m{{{OURS}}}[1h]) < 0.01
        and on (cluster, namespace, pod)
        sum {POD} (node_device_namespace_pod:npu_device_allocation:share{{{OURS}}})"""


def _quota() -> Row:
    key = "by (cluster, namespace, resourcequota, resource)"
    return Row(
        title="Quota",
        panels=[
            table(
                "Quotas",
                "Every quota on NPUs, by resource name. Above 100 %: it was lowered below its use.",
                [
                    rows(f"max {key} ({QUOTA}_used:max{{{OURS}}})"),
                    rows(f"max {key} ({QUOTA}_hard:max{{{OURS}}})"),
                    rows(f"max {key} ({QUOTA}_used_per_hard:ratio{{{OURS}}})"),
                ],
                {
                    "cluster": "Cluster",
                    "namespace": "Namespace",
                    "resourcequota": "Quota",
                    "resource": "Resource",
                    "Value #A": "Used",
                    "Value #B": "Allowed",
                    "Value #C": "Full",
                },
                empty=f"No quota on NPUs. {WITHOUT_KSM}",
                overrides=[
                    _TEAM_LINK,
                    override("Full", unit="percentunit", min=0, max=1, custom_cellOptions=_BAR),
                ],
                sort=("Full", True),
                size=(12, 9),
            ),
            lines(
                "Requested, allowed, held, busy",
                "NPUs that pending and running Pods ask for, what the quota allows, what Pods"
                " hold, and busy cores. Requests above held: Pods wait.",
                [
                    line(f"sum(namespace:npu_requests:sum{{{OURS}}})", "requested"),
                    line(f"sum({QUOTA}_hard:max{{{OURS}}})", "allowed"),
                    line(f"sum(namespace:npu_device_allocation:sum{{{OURS}}})", "held"),
                    line(
                        f"sum(namespace:npu_pod_core_busy_seconds:rate5m{{{OURS}}})", "busy cores"
                    ),
                ],
                Values(unit="short", empty=WITHOUT_KSM, low=0),
                overrides=[
                    fixed("requested", ORANGE),
                    fixed("allowed", VERMILION, dashed=True),
                    fixed("held", SKY),
                    fixed("busy cores", GREEN),
                ],
                height=9,
            ),
            table(
                "Autoscalers at the end of a quota",
                "Autoscalers in namespaces whose quota is full, that want more replicas than they"
                " have (NpuHpaMaxedOutByQuota).",
                [
                    rows(f"{_scaler('status_desired_replicas')} > {_scaler_now()} and {_full()}"),
                    rows(f"{_scaler_now()} and {_full()}"),
                    rows(f"{_scaler('spec_max_replicas')} and {_full()}"),
                ],
                {
                    "namespace": "Namespace",
                    "horizontalpodautoscaler": "Autoscaler",
                    "Value #A": "Wants",
                    "Value #B": "Has",
                    "Value #C": "May have",
                },
                empty="No autoscaler is held back",
                size=(24, 6),
            ),
        ],
    )


def _scaler(metric: str) -> str:
    return (
        "max by (cluster, namespace, horizontalpodautoscaler)"
        f" (kube_horizontalpodautoscaler_{metric}{{{OURS}}})"
    )


def _scaler_now() -> str:
    return _scaler("status_current_replicas")


def _full() -> str:
    return f"on (cluster, namespace) {QUOTA}_used_per_hard:ratio{{{OURS}}} >= 1"


def _workloads() -> Row:
    return Row(
        title="Workloads",
        panels=[
            table(
                "Pods that hold an NPU",
                "NPUs held (a shared one by its parts), busy cores over 5 minutes and over an hour."
                " Estimated: the NPU is shared and its load divided evenly.",
                [
                    rows(
                        f"sum {POD} (node_device_namespace_pod:npu_device_allocation:share"
                        f"{{{OURS}}})"
                    ),
                    rows(f"namespace_pod:npu_pod_core_busy_seconds:rate5m{{{OURS}}}"),
                    rows(
                        "avg_over_time("
                        f"namespace_pod:npu_pod_core_busy_seconds:rate5m{{{OURS}}}[1h])"
                    ),
                    rows(
                        "count by (cluster, namespace, pod, node, attribution)"
                        f" (rate(npu_pod_core_busy_seconds_total{{{SCRAPED}}}[$__rate_interval]))"
                    ),
                ],
                {
                    "namespace": "Namespace",
                    "pod": "Pod",
                    "node": "Node",
                    "attribution": "Attribution",
                    "Value #A": "NPUs held",
                    "Value #B": "Busy cores",
                    "Value #C": "Busy cores, 1 h",
                },
                empty="No Pod holds an NPU",
                overrides=[
                    _POD_LINK,
                    override("NPUs held", decimals=2),
                    override("Busy cores", decimals=2),
                    override("Busy cores, 1 h", decimals=2),
                ],
                sort=("Busy cores, 1 h", False),
            ),
            table(
                "Held and not used",
                "Pods that hold an NPU and use less than 1 % of one core: ask the owner to give it"
                " back, or look for a program that fell back to the CPU.",
                [rows(_idle())],
                {
                    "namespace": "Namespace",
                    "pod": "Pod",
                    "Value": "Busy cores, 1 h",
                },
                empty="No Pod is idle",
                overrides=[_POD_LINK, override("Busy cores, 1 h", decimals=3)],
                size=(12, 7),
            ),
            lines(
                "Busy cores by Pod",
                "The ten busiest Pods.",
                [
                    line(
                        f"topk(10, namespace_pod:npu_pod_core_busy_seconds:rate5m{{{OURS}}})",
                        "{{namespace}}/{{pod}}",
                    )
                ],
                Values(unit="short", empty="No Pod holds an NPU", low=0),
                height=7,
            ),
        ],
    )


def _bill() -> Row:
    held = f"sum_over_time(namespace:npu_device_allocation:sum{{{OURS}}}[$__range:1m]) / 60"
    held_cores = f"sum_over_time(namespace:npu_held_cores:sum{{{OURS}}}[$__range:1m]) / 60"
    busy = (
        "sum by (cluster, namespace)"
        f" (increase(npu_pod_core_busy_seconds_total{{{SCRAPED}}}[$__range])) / 3600"
    )
    return Row(
        title="What it costs, over the time range above",
        panels=[
            table(
                "By team",
                "NPU-hours held (what others could not have), core-hours busy, and the part of the"
                " held core-hours that was used. docs/monitoring.md has the queries for a bill.",
                [rows(held), rows(busy), rows(f"{busy} / on (cluster, namespace) ({held_cores})")],
                {
                    "cluster": "Cluster",
                    "namespace": "Namespace",
                    "Value #A": "NPU-hours held",
                    "Value #B": "Core-hours busy",
                    "Value #C": "Used",
                },
                empty="Nothing was held",
                overrides=[
                    _TEAM_LINK,
                    override("NPU-hours held", decimals=1),
                    override("Core-hours busy", decimals=1),
                    override("Used", unit="percentunit", min=0, max=1, custom_cellOptions=_BAR),
                ],
                sort=("NPU-hours held", True),
                size=(14, 9),
            ),
            table(
                "Nobody's",
                "Core-hours that belong to no Pod, for all teams. no_holder: a program used an NPU"
                " that it was not given (NpuUnaccountedUse).",
                [
                    rows(
                        "sum by (node, device, reason)"
                        f" (increase(npu_unaccounted_core_busy_seconds_total{{{RAW}}}[$__range]))"
                        " / 3600 > 0"
                    )
                ],
                {
                    "node": "Node",
                    "device": "NPU",
                    "reason": "Reason",
                    "Value": "Core-hours",
                },
                empty="All use is accounted for",
                overrides=[override("Core-hours", decimals=2)],
                sort=("Core-hours", True),
                size=(10, 9),
            ),
        ],
    )


def team() -> Json:
    """Return the dashboard."""
    return dashboard(
        "npu-team",
        "NPU teams and quotas",
        "What teams may have, hold and use, who waits, and what it costs.",
        [_now(), _quota(), _workloads(), _bill()],
        variables=[
            variable(
                "namespace",
                "Namespace",
                '{__name__=~"namespace:npu_device_allocation:sum|namespace:npu_requests:sum'
                f'|{QUOTA}_hard:max", {RECORDED}}}',
            )
        ],
        since="now-7d",
    )
