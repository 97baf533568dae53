"""The thermal guard: what it sees, what it does, and why it does less than it could."""

from ci.chart import Json
from ci.dashboards.fleet import NODE_LINK, WITHHELD_COLUMNS
from ci.dashboards.frame import Row, dashboard, variable
from ci.dashboards.palette import BLUE, GREY, ORANGE, SKY, VERMILION, heat, mapping, steps, yes_no
from ci.dashboards.panels import Values, fixed, lines, number, override, table, timeline
from ci.dashboards.query import RAW, RECORDED, line, rows, withheld

#: The guard writes the node that a series is about, plugin and exporter have it as a target label.
HERE = f'{RAW}, node=~"$node"'
KEPT = f'{RECORDED}, node=~"$node"'
BY = "by (cluster, node)"


def _now() -> Row:
    alarm = steps((1, VERMILION))
    return Row(
        title="Now",
        panels=[
            number(
                "Leading guards",
                "Exactly one guard leads and writes. 0: nothing protects the boards.",
                [line(f"sum(npu_thermal_guard_leader{{{RAW}}})", "leading")],
                Values(
                    unit="short",
                    empty="no guard",
                    decimals=0,
                    thresholds=steps((1, BLUE), (2, ORANGE), base=VERMILION),
                ),
            ),
            number(
                "Mode",
                "enforce: the guard acts. observe: it decides and writes nothing.",
                [
                    line(
                        f'max(npu_thermal_guard_mode{{{RAW}, mode="enforce"}})',
                        "mode",
                    )
                ],
                Values(
                    unit="none",
                    empty="no guard",
                    mappings=mapping([(0, "observe", ORANGE), (1, "enforce", BLUE)]),
                ),
            ),
            number(
                "Last judgement",
                "Age of the last judgement of all nodes; normal is a few seconds.",
                [
                    line(
                        "time() - max(npu_thermal_guard_last_evaluation_timestamp_seconds"
                        f"{{{RAW}}})",
                        "age",
                    )
                ],
                Values(unit="s", empty="no guard", decimals=0, thresholds=steps((60, VERMILION))),
            ),
            number(
                "Nodes judged",
                "Nodes with an NPU that the guard looks after.",
                [line(f"max(npu_thermal_guard_nodes{{{RAW}}})", "nodes")],
                Values(unit="short", empty="no guard", decimals=0),
            ),
            number(
                "Tainted nodes",
                "Nodes that get no new work.",
                [line(f"sum(npu_thermal_guard_taint_active{{{HERE}}})", "tainted")],
                Values(unit="short", empty="no guard", decimals=0, thresholds=alarm),
            ),
            number(
                "Nodes not known",
                "Nodes whose temperature has not been known lately: they are not protected"
                " (NpuThermalGuardBlind).",
                [
                    line(
                        f"count(node:npu_heat_state:level{{{KEPT}}} == 0) or vector(0)",
                        "unknown",
                    )
                ],
                Values(unit="short", empty="no guard", decimals=0, thresholds=alarm),
            ),
            number(
                "Storm",
                "yes: so many nodes became hot at once that evictions are frozen. It is the room,"
                " not the boards.",
                [line(f"max(npu_thermal_guard_storm_active{{{RAW}}})", "storm")],
                Values(unit="none", empty="no guard", mappings=yes_no()),
            ),
            number(
                "Writes waiting",
                "Nodes that do not look as decided yet.",
                [line(f"max(npu_thermal_guard_nodes_waiting{{{RAW}}})", "waiting")],
                Values(unit="short", empty="no guard", decimals=0, thresholds=alarm),
            ),
        ],
    )


def _nodes() -> Row:
    return Row(
        title="Nodes",
        panels=[
            timeline(
                "Heat state",
                "What the guard made of each node's temperature.",
                [line(f"node:npu_heat_state:level{{{KEPT}}}", "{{node}}")],
                Values(unit="none", empty="no guard", mappings=heat()),
            ),
            table(
                "Withheld, and why",
                "The guard's taint, withdrawn slots, unhealthy NPUs, hardware without a driver;"
                " each with its reason.",
                [rows(withheld(HERE))],
                WITHHELD_COLUMNS,
                empty="Nothing is withheld",
                overrides=[NODE_LINK],
                size=(12, 8),
            ),
            lines(
                "Temperatures that decide, and thresholds",
                "Filtered temperature of each NPU, and the lowest thresholds among the chosen"
                " nodes. Choose one node to see its own.",
                [
                    line(f"npu_thermal_guard_temperature_celsius{{{HERE}}}", "{{node}} {{device}}"),
                    *(
                        line(
                            "min(npu_thermal_guard_threshold_celsius"
                            f'{{{HERE}, threshold="{name}"}})',
                            name,
                        )
                        for name in ("hot_leave", "hot", "critical", "emergency")
                    ),
                ],
                Values(unit="celsius", empty="no guard"),
                overrides=[
                    fixed("hot_leave", SKY, dashed=True),
                    fixed("hot", ORANGE, dashed=True),
                    fixed("critical", VERMILION, dashed=True),
                    fixed("emergency", GREY, dashed=True),
                ],
            ),
            lines(
                "Time left at this rate",
                "Seconds until the node reaches its critical threshold if the last ten minutes go"
                " on; shown while it is less than half an hour.",
                [
                    line(
                        f"(node:npu_critical_threshold_celsius:min{{{KEPT}}}"
                        f" - node:npu_temperature_celsius:max{{{KEPT}}})"
                        f" / (deriv(node:npu_temperature_celsius:max{{{KEPT}}}[10m]) > 0.001)"
                        " < 1800",
                        "{{node}}",
                    )
                ],
                Values(unit="s", empty="No node heads for its limit", low=0),
            ),
            lines(
                "To the power-off",
                "Distance of each node's hottest zone to the temperature at which its kernel powers"
                " it off.",
                [
                    line(
                        f"min {BY} (node_zone:npu_shutdown_headroom_celsius:min{{{KEPT}}})",
                        "{{node}}",
                    )
                ],
                Values(unit="celsius", empty="These boards have no critical trip point", low=0),
                width=8,
            ),
            lines(
                "Changes per interval",
                "Changes of a node's heat state. Many: widen the gap between the thresholds"
                " (NpuThermalGuardFlapping).",
                [
                    line(
                        f"sum {BY} (increase(npu_thermal_guard_node_transitions_total"
                        f"{{{HERE}}}[$__rate_interval]))",
                        "{{node}}",
                    )
                ],
                Values(unit="short", empty="no guard", low=0),
                width=8,
            ),
            table(
                "Time tainted",
                "Part of the time range in which the node was closed to new work.",
                [
                    rows(
                        f"sum {BY} (avg_over_time("
                        f"npu_thermal_guard_taint_active{{{HERE}}}[$__range]))"
                    )
                ],
                {"cluster": "Cluster", "node": "Node", "Value": "Tainted"},
                empty="no guard",
                overrides=[
                    NODE_LINK,
                    override(
                        "Tainted",
                        unit="percentunit",
                        min=0,
                        max=1,
                        custom_cellOptions={"type": "gauge", "mode": "basic"},
                    ),
                ],
                sort=("Tainted", True),
                size=(8, 8),
            ),
        ],
    )


def _actions() -> Row:
    return Row(
        title="What the guard does, and does not",
        panels=[
            lines(
                "Less than the heat asks for, by reason",
                "Nodes that are spared a step: budget (too many closed already), a storm, the"
                " mode, and so on.",
                [
                    line(
                        "max by (cluster, reason)"
                        f" (npu_thermal_guard_held_back_nodes{{{RAW}}})",
                        "{{reason}}",
                    )
                ],
                Values(unit="short", empty="no guard", low=0),
                width=8,
            ),
            lines(
                "Budget",
                "Nodes that may be closed at a time, and that are, by resource or label.",
                [
                    line(
                        "max by (cluster, scope, name)"
                        f" (npu_thermal_guard_budget_limit{{{RAW}}})",
                        "{{name}} limit",
                    ),
                    line(
                        f"max by (cluster, scope, name) (npu_thermal_guard_budget_used{{{RAW}}})",
                        "{{name}} closed",
                    ),
                ],
                Values(unit="short", empty="no guard", low=0),
                width=8,
            ),
            lines(
                "Evictions by outcome",
                "Attempts to evict a Pod from a node that is too hot. blocked: a"
                " PodDisruptionBudget; no_destination: nowhere else to run.",
                [
                    line(
                        "sum by (outcome) (increase(npu_thermal_guard_evictions_total"
                        f"{{{RAW}}}[$__rate_interval]))",
                        "{{outcome}}",
                    )
                ],
                Values(unit="short", empty="no guard", low=0),
                width=8,
            ),
            table(
                "Slots that heat leaves",
                "The plugin's own reading: how many slots of an NPU may be in use or on offer at"
                " its heat state.",
                [
                    rows(
                        "max by (cluster, node, device, state)"
                        f" (npu_device_plugin_heat_state{{{HERE}}}) == 1"
                    ),
                    rows(
                        "max by (cluster, node, device)"
                        f" (npu_device_plugin_slot_limit{{{HERE}}})"
                    ),
                ],
                {"node": "Node", "device": "NPU", "state": "Heat", "Value #B": "Slots allowed"},
                empty="plugin.heat is off",
                overrides=[NODE_LINK],
                size=(12, 7),
            ),
            table(
                "Taints seen by kube-state-metrics",
                "An independent witness: taints as the API server has them.",
                [
                    rows(
                        "max by (node, key, effect)"
                        f' (kube_node_spec_taint{{{KEPT}, key=~"thermal[.]npu-platform[.]io/.*"}})'
                    )
                ],
                {"node": "Node", "key": "Taint", "effect": "Effect"},
                empty="No taint of ours, or no kube-state-metrics",
                overrides=[NODE_LINK],
                size=(12, 7),
            ),
        ],
    )  # fmt: skip


def _machinery() -> Row:
    return Row(
        title="Is the guard well?",
        collapsed=True,
        panels=[
            lines(
                "Failed requests to the API server",
                "By method and reason. conflict is normal now and then: somebody else changed the"
                " Node at the same time.",
                [
                    line(
                        "sum by (operation, reason) (increase(npu_thermal_guard_api_errors_total"
                        f"{{{RAW}}}[$__rate_interval]))",
                        "{{operation}} {{reason}}",
                    )
                ],
                Values(unit="short", empty="No request has failed", low=0),
                width=8,
            ),
            lines(
                "Readings of exporters",
                "By outcome. no_exporter: the node's exporter Pod is gone.",
                [
                    line(
                        "sum by (outcome) (rate(npu_thermal_guard_scrapes_total"
                        f"{{{RAW}}}[$__rate_interval]))",
                        "{{outcome}}",
                    )
                ],
                Values(unit="reqps", empty="no guard", low=0),
                width=8,
            ),
            lines(
                "Age of the oldest temperature",
                "Per node. Old readings make the state unknown.",
                [line(f"npu_thermal_guard_sample_age_seconds{{{HERE}}}", "{{node}}")],
                Values(unit="s", empty="no guard", low=0),
                width=8,
            ),
            lines(
                "Writes",
                "Parts of Nodes that were written, per interval.",
                [
                    line(
                        "sum by (part) (increase(npu_thermal_guard_node_writes_total"
                        f"{{{RAW}}}[$__rate_interval]))",
                        "{{part}}",
                    )
                ],
                Values(unit="short", empty="no guard", low=0),
            ),
            timeline(
                "Fence around its token",
                "no: the admission policy does not hold; whoever takes the guard's token can change"
                " every node (NpuThermalGuardUnfenced).",
                [
                    line(
                        "min by (cluster, namespace)"
                        f" (npu_thermal_guard_admission_policy_enforced{{{RAW}}})",
                        "fenced",
                    )
                ],
                Values(
                    unit="none", empty="Not known", mappings=yes_no(yes="yes", no="no", bad=False)
                ),
            ),
        ],
    )


def thermal() -> Json:
    """Return the dashboard."""
    return dashboard(
        "npu-thermal",
        "NPU heat and thermal guard",
        "Which nodes are hot, what the guard does about it, and what holds it back.",
        [_now(), _nodes(), _actions(), _machinery()],
        variables=[variable("node", "Node", f"npu_thermal_guard_threshold_celsius{{{RAW}}}")],
        nodes='node=~"$node"',
    )
