"""The fleet: what is there, whether it is well and cool, and how much of it is used."""

from ci.chart import Json
from ci.dashboards.frame import Row, dashboard
from ci.dashboards.monitoring import monitoring
from ci.dashboards.palette import BLUE, GREEN, ORANGE, SKY, VERMILION, heat, steps, yes_no
from ci.dashboards.panels import (
    Values,
    fixed,
    heatmap,
    lines,
    link,
    number,
    override,
    table,
    timeline,
)
from ci.dashboards.query import RAW, RECORDED, line, rows, withheld

NODE_PAGE = '/d/npu-node?var-datasource=${datasource}&var-node=${__data.fields["Node"]}'
NODE_LINK = link("Node", "Show this node", f"{NODE_PAGE}&${{__url_time_range}}")
WITHHELD_COLUMNS = {
    "node": "Node",
    "what": "What",
    "reason": "Reason",
    "resource": "Resource",
    "device": "NPU",
    "Value": "How many",
}


def _now() -> Row:
    bad = steps((1, VERMILION))
    return Row(
        title="Now",
        panels=[
            number(
                "Exporters",
                "Nodes whose exporter answers, of those that Prometheus knows. Fewer: see the"
                " alerts NpuExporterDown and NpuExporterAbsent.",
                [
                    line(
                        f'sum(up{{{RAW}, job="npu-platform-exporter"}}) or vector(0)', "answering"
                    ),
                    line(f'count(up{{{RAW}, job="npu-platform-exporter"}}) or vector(0)', "known"),
                ],
                Values(unit="short", empty="none", decimals=0),
                named=True,
            ),
            number(
                "NPUs",
                "NPUs with a working driver, of all vendors.",
                [line(f"sum(count by (vendor) (npu_info{{{RAW}}}))", "NPUs")],
                Values(unit="short", empty="none", decimals=0),
            ),
            number(
                "Utilisation",
                "Busy time of all cores over sampled time, 0 to 100 %. A program that waits for"
                " memory, as large language models do, shows 30 to 40 % and is not idle.",
                [
                    line(
                        f"sum(rate(npu_core_busy_seconds_total{{{RAW}}}[$__rate_interval]))"
                        f" / sum(rate(npu_core_sampled_seconds_total{{{RAW}}}[$__rate_interval]))",
                        "utilisation",
                    )
                ],
                Values(unit="percentunit", empty="no samples", low=0, high=1, decimals=0),
                graph=True,
            ),
            number(
                "Busy cores",
                "Cores that are busy at this moment, summed over all nodes.",
                [
                    line(
                        f"sum(rate(npu_core_busy_seconds_total{{{RAW}}}[$__rate_interval]))", "busy"
                    )
                ],
                Values(unit="short", empty="no samples", decimals=1),
                graph=True,
            ),
            number(
                "Hottest NPU",
                "The hottest temperature that an NPU is judged by. Its limits are on the thermal"
                " dashboard: they differ between boards.",
                [line(f"max(node:npu_temperature_celsius:max{{{RECORDED}}})", "hottest")],
                Values(unit="celsius", empty="no reading", decimals=1),
                graph=True,
            ),
            number(
                "Tainted nodes",
                "Nodes that get no new work because the thermal guard tainted them. The table"
                " below says which, and why.",
                [line(f"sum(npu_thermal_guard_taint_active{{{RAW}}})", "tainted")],
                Values(unit="short", empty="no guard", decimals=0, thresholds=bad),
            ),
            number(
                "Unhealthy NPUs",
                "NPUs that are not given out because they are broken. The table below says why.",
                [line(f'sum(npu_device_plugin_devices{{{RAW}, health="unhealthy"}})', "unhealthy")],
                Values(unit="short", empty="no plugin", decimals=0, thresholds=bad),
            ),
            number(
                "Firing alerts",
                "Alerts of this platform that fire. Each has a runbook, linked from the alert.",
                [
                    line(
                        f'count(ALERTS{{{RECORDED}, alertname=~"Npu.*", alertstate="firing"}})'
                        " or vector(0)",
                        "alerts",
                    )
                ],
                Values(unit="short", empty="none", decimals=0, thresholds=bad),
            ),
        ],
    )


def _nodes() -> Row:
    by_node = "by (cluster, node)"
    slots = f'sum {by_node} (npu_device_plugin_slots{{{RAW}, state="healthy"}})'
    return Row(
        title="Nodes",
        panels=[
            table(
                "Withheld, and why",
                "Nodes with the guard's taint, slots the plugin withdrew, NPUs it calls unhealthy,"
                " hardware without a driver, clocks it lowered; each with its reason. Heat ends by"
                " itself.",
                [rows(withheld(RAW))],
                WITHHELD_COLUMNS,
                empty="Nothing is withheld",
                overrides=[NODE_LINK],
                sort=("Node", False),
                size=(24, 6),
            ),
            table(
                "Nodes with an NPU",
                "One line per node and model; click a node for its own dashboard. Slots are the"
                " units Pods ask for: one per NPU, or more where NPUs are shared.",
                [
                    rows(
                        f"max by (cluster, node, vendor, model, driver, driver_version)"
                        f" (npu_info{{{RAW}}})"
                    ),
                    rows(f"node:npu_core_busy_per_sampled_seconds:ratio_rate5m{{{RECORDED}}}"),
                    rows(f"node:npu_temperature_celsius:max{{{RECORDED}}}"),
                    rows(
                        f"min {by_node} (node_zone:npu_shutdown_headroom_celsius:min{{{RECORDED}}})"
                    ),
                    rows(f"node:npu_heat_state:level{{{RECORDED}}}"),
                    rows(
                        f"min {by_node} (npu_frequency_max_hertz{{{RAW}}}"
                        f" / npu_frequency_hardware_max_hertz{{{RAW}}})"
                    ),
                    rows(f"sum {by_node} (npu_device_plugin_allocated{{{RAW}}})"),
                    rows(slots),
                    rows(
                        f"avg {by_node} (avg_over_time("
                        f"npu_thermal_guard_taint_active{{{RAW}}}[$__range]))"
                    ),
                    rows(f'max {by_node} (up{{{RAW}, job="npu-platform-exporter"}})'),
                ],
                {
                    "cluster": "Cluster",
                    "node": "Node",
                    "vendor": "Vendor",
                    "model": "Model",
                    "driver": "Driver",
                    "driver_version": "Version",
                    "Value #B": "Utilisation",
                    "Value #C": "Temperature",
                    "Value #D": "To shutdown",
                    "Value #E": "Heat",
                    "Value #F": "Clock allowed",
                    "Value #G": "Slots in use",
                    "Value #H": "Slots on offer",
                    "Value #I": "Time tainted",
                    "Value #J": "Exporter",
                },
                empty="No node with an NPU",
                overrides=[
                    NODE_LINK,
                    override(
                        "Utilisation",
                        unit="percentunit",
                        decimals=0,
                        min=0,
                        max=1,
                        custom_cellOptions={"type": "gauge", "mode": "basic"},
                    ),
                    override("Temperature", unit="celsius", decimals=1),
                    override("To shutdown", unit="celsius", decimals=1),
                    override(
                        "Heat", mappings=heat(), custom_cellOptions={"type": "color-background"}
                    ),
                    override("Clock allowed", unit="percentunit", decimals=0),
                    override("Time tainted", unit="percentunit", decimals=1),
                    override(
                        "Exporter",
                        mappings=yes_no(yes="answers", no="silent", bad=False),
                        custom_cellOptions={"type": "color-text"},
                    ),
                ],
                sort=("Temperature", True),
                size=(24, 10),
            ),
        ],
    )


def _load_and_heat() -> Row:
    level = f"node:npu_heat_state:level{{{RECORDED}}}"
    return Row(
        title="Load and heat",
        panels=[
            lines(
                "Busiest nodes",
                "Utilisation of the ten busiest nodes, and of all together: busy over sampled"
                " time. Load is the time a job was resident on a core; a program that waits for"
                " memory shows 30 to 40 %.",
                [
                    line(
                        "topk(10,"
                        f" node:npu_core_busy_per_sampled_seconds:ratio_rate5m{{{RECORDED}}})",
                        "{{node}}",
                    ),
                    line(
                        f"cluster:npu_core_busy_per_sampled_seconds:ratio_rate5m{{{RECORDED}}}",
                        "all nodes",
                    ),
                ],
                Values(unit="percentunit", empty="no samples", low=0, high=1),
                overrides=[fixed("all nodes", BLUE, dashed=True)],
            ),
            heatmap(
                "Nodes by utilisation",
                "How many nodes are how busy: readable with thousands of nodes. A wide spread says"
                " that work is badly spread.",
                [
                    line(
                        f"node:npu_core_busy_per_sampled_seconds:ratio_rate5m{{{RECORDED}}}",
                        "{{node}}",
                    )
                ],
                Values(unit="percentunit", empty="no samples", low=0, high=1),
                bucket=0.1,
            ),
            lines(
                "Hottest nodes",
                "The ten hottest nodes, and the lowest of the guard's thresholds in the fleet."
                " Thresholds differ between boards; the thermal dashboard has each.",
                [
                    line(f"topk(10, node:npu_temperature_celsius:max{{{RECORDED}}})", "{{node}}"),
                    line(
                        f'min(npu_thermal_guard_threshold_celsius{{{RAW}, threshold="hot"}})',
                        "hot",
                    ),
                    line(
                        f'min(npu_thermal_guard_threshold_celsius{{{RAW}, threshold="critical"}})',
                        "critical",
                    ),
                ],
                Values(unit="celsius", empty="no reading"),
                overrides=[
                    fixed("hot", ORANGE, dashed=True),
                    fixed("critical", VERMILION, dashed=True),
                ],
            ),
            timeline(
                "Nodes that were too hot",
                "Heat state of every node that was hot, critical or worse in this time range.",
                [
                    line(
                        f"{level} and on (cluster, node)"
                        f" max_over_time({level}[$__range] @ end()) >= 4",
                        "{{node}}",
                    )
                ],
                Values(unit="none", empty="No node was too hot", mappings=heat()),
            ),
        ],
    )


def _capacity() -> Row:
    return Row(
        title="Capacity",
        panels=[
            lines(
                "Slots on offer and in use",
                "By resource name, because whole NPUs and shared slots are different units: what"
                " nodes offer, and what containers hold.",
                [
                    line(
                        "sum by (resource)"
                        f' (npu_device_plugin_slots{{{RAW}, state="healthy"}})',
                        "{{resource}} on offer",
                    ),
                    line(
                        f"sum by (resource) (npu_device_plugin_allocated{{{RAW}}})",
                        "{{resource}} in use",
                    ),
                ],
                Values(unit="short", empty="no plugin", low=0),
                width=8,
            ),
            lines(
                "Held and really busy",
                "NPUs that Pods hold, and how many would be enough for the work done on them."
                " A wide gap: see who holds idle NPUs on the team dashboard.",
                [
                    line(f"count(npu_info{{{RAW}}})", "there"),
                    line(f"sum(namespace:npu_device_allocation:sum{{{RECORDED}}})", "held"),
                    line(
                        "sum(node_device:npu_core_busy_per_sampled_seconds:ratio_rate5m"
                        f"{{{RECORDED}}})",
                        "busy",
                    ),
                ],
                Values(unit="short", empty="no samples", low=0),
                overrides=[fixed("there", BLUE, dashed=True), fixed("held", SKY),
                           fixed("busy", GREEN)],
                width=8,
            ),
            lines(
                "Withheld slots, by reason",
                "Slots that exist and are not offered: withdrawn for heat, or their NPU is"
                " unhealthy.",
                [
                    line(
                        f"sum by (reason) (npu_device_plugin_slots_withdrawn{{{RAW}}})",
                        "withdrawn: {{reason}}",
                    ),
                    line(
                        "count by (reason)"
                        f" (npu_device_plugin_device_health{{{RAW}}} == 0)",
                        "unhealthy: {{reason}}",
                    ),
                ],
                Values(unit="short", empty="Nothing is withheld", low=0),
                width=8,
            ),
        ],
    )  # fmt: skip


def fleet() -> Json:
    """Return the dashboard."""
    return dashboard(
        "npu-fleet",
        "NPU fleet",
        "All nodes with an NPU: what is there, what is withheld and why, load, heat, capacity.",
        [_now(), _nodes(), _load_and_heat(), _capacity(), monitoring()],
    )
