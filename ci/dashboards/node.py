"""One node: everything its board, its plugin and the guard say about it."""

from ci.chart import Json
from ci.dashboards.fleet import WITHHELD_COLUMNS
from ci.dashboards.frame import Row, dashboard, variable
from ci.dashboards.palette import GREY, ORANGE, SKY, VERMILION, heat, yes_no
from ci.dashboards.panels import Values, fixed, lines, link, number, table, text, timeline
from ci.dashboards.query import RAW, RECORDED, line, rows, withheld

HERE = f'{RAW}, node=~"$node"'
KEPT = f'{RECORDED}, node=~"$node"'
DEVICE = f'{HERE}, device=~"$device"'

HOW_TO_READ_LOAD = """\
**Load is the time a job was resident on a core, over the time that was sampled.** It is neither
arithmetic done nor memory moved. A vision model can show 90 % and more. A large language model
reads all its weights for every token: it waits for memory and shows 30 to 40 % while the NPU can do
no more for it. So 40 % is not spare room for a second such program. A job also counts on one core
only unless it was built for several (*core mask*): one full core of three is 33 %.
"""


def _now() -> Row:
    return Row(
        title="Now",
        panels=[
            table(
                "Board",
                "What the node has. `simulated` is true where no real NPU computes.",
                [
                    rows(
                        f"max by (node, device, vendor, model, board, driver, driver_version, mode,"
                        f" library_version, cores, simulated) (npu_info{{{DEVICE}}})"
                    )
                ],
                {
                    "node": "Node",
                    "device": "NPU",
                    "vendor": "Vendor",
                    "model": "Model",
                    "board": "Board",
                    "driver": "Driver",
                    "driver_version": "Driver version",
                    "mode": "Mode",
                    "library_version": "Library version",
                    "cores": "Cores",
                    "simulated": "Simulated",
                },
                empty="No NPU with a working driver",
                size=(24, 4),
            ),
            number(
                "Utilisation",
                "Busy over sampled time of all cores. See 'How to read the load' below.",
                [line(f"node:npu_core_busy_per_sampled_seconds:ratio_rate5m{{{KEPT}}}", "busy")],
                Values(unit="percentunit", empty="no samples", low=0, high=1, decimals=0),
                graph=True,
                width=4,
            ),
            number(
                "Temperature",
                "The temperature the node is judged by.",
                [line(f"node:npu_temperature_celsius:max{{{KEPT}}}", "judged")],
                Values(unit="celsius", empty="no reading", decimals=1),
                graph=True,
                width=4,
            ),
            number(
                "Heat state",
                "What the guard makes of the temperature. From hot on the node is tainted and gets"
                " no new work; unknown means that nothing protects it.",
                [line(f"node:npu_heat_state:level{{{KEPT}}}", "state")],
                Values(unit="none", empty="no guard", mappings=heat()),
                width=4,
            ),
            table(
                "Withheld, and why",
                "The guard's taint, withdrawn slots, unhealthy NPUs, hardware without a driver;"
                " each with its reason.",
                [rows(withheld(HERE))],
                WITHHELD_COLUMNS,
                empty="Nothing is withheld",
                size=(12, 4),
            ),
        ],
    )


def _load() -> Row:
    return Row(
        title="Load",
        panels=[
            lines(
                "Load of each core",
                "Busy over sampled time per core. 30 to 40 % is normal for a program that waits for"
                " memory.",
                [
                    line(
                        "sum by (node, device, core) (rate(npu_core_busy_seconds_total"
                        f"{{{DEVICE}}}[$__rate_interval]))"
                        " / sum by (node, device, core) (rate(npu_core_sampled_seconds_total"
                        f"{{{DEVICE}}}[$__rate_interval]))",
                        "{{node}} {{device}} core {{core}}",
                    )
                ],
                Values(unit="percentunit", empty="no samples", low=0, high=1),
            ),
            lines(
                "Who keeps the cores busy",
                "Busy cores by Pod, stacked. A shared NPU is divided evenly among its Pods"
                " (estimated). no_holder is work of a program that was not given the NPU.",
                [
                    line(
                        "sum by (namespace, pod, attribution) (rate(npu_pod_core_busy_seconds_total"
                        f"{{{HERE}}}[$__rate_interval]))",
                        "{{namespace}}/{{pod}} ({{attribution}})",
                    ),
                    line(
                        "sum by (reason) (rate(npu_unaccounted_core_busy_seconds_total"
                        f"{{{DEVICE}}}[$__rate_interval]))",
                        "nobody: {{reason}}",
                    ),
                ],
                Values(unit="short", empty="no samples", low=0),
                overrides=[
                    fixed("nobody: no_holder", VERMILION),
                    fixed("nobody: holders_unknown", GREY),
                ],
                stacked=True,
            ),
            table(
                "Holders now",
                "Containers that hold the NPU, as the kubelet tells.",
                [
                    rows(
                        "max by (node, device, namespace, pod, container, resource)"
                        f" (npu_device_allocation_info{{{DEVICE}}})"
                    )
                ],
                {
                    "node": "Node",
                    "device": "NPU",
                    "namespace": "Namespace",
                    "pod": "Pod",
                    "container": "Container",
                    "resource": "Resource",
                },
                empty="Nobody holds it",
                overrides=[
                    link(
                        "Namespace",
                        "Show this team",
                        "/d/npu-team?var-datasource=${datasource}"
                        '&var-namespace=${__data.fields["Namespace"]}&${__url_time_range}',
                    )
                ],
                size=(12, 6),
            ),
            text("How to read the load", HOW_TO_READ_LOAD, width=12, height=6),
        ],
    )


def _clock() -> Row:
    return Row(
        title="Clock and power",
        panels=[
            lines(
                "Clock",
                "Clock now, highest clock allowed now, and that of the hardware. An idle NPU shows"
                " its last clock. Allowed below hardware: somebody, or heat, capped it; where the"
                " device plugin did, for heat, its limit is drawn, too.",
                [
                    line(f"npu_frequency_hertz{{{DEVICE}}}", "{{node}} {{device}} now"),
                    line(f"npu_frequency_max_hertz{{{DEVICE}}}", "{{node}} {{device}} allowed"),
                    line(
                        f"npu_frequency_hardware_max_hertz{{{DEVICE}}}",
                        "{{node}} {{device}} hardware",
                    ),
                    line(
                        f"npu_device_plugin_clamped_hertz{{{DEVICE}}}",
                        "{{node}} {{device}} lowered for heat",
                    ),
                ],
                Values(unit="hertz", empty="This driver tells no clock", low=0),
            ),
            timeline(
                "Power",
                "Whether the NPU's power domain is on. Off is normal for an idle NPU.",
                [line(f"npu_power_on{{{DEVICE}}}", "{{node}} {{device}}")],
                Values(
                    unit="none",
                    empty="This driver does not tell",
                    mappings=yes_no(yes="on", no="off", bad=False),
                ),
            ),
        ],
    )


def _heat() -> Row:
    limit = f"npu_thermal_guard_threshold_celsius{{{HERE}"
    return Row(
        title="Heat",
        panels=[
            lines(
                "Judged temperature and the guard's thresholds",
                "At hot the node gets no new work, at critical it also evicts where that is"
                " enabled; it is reopened below hot_leave after a hold.",
                [
                    line(f"npu_temperature_celsius{{{DEVICE}}}", "{{node}} {{device}} ({{zone}})"),
                    line(f'max({limit}, threshold="hot"}})', "hot"),
                    line(f'max({limit}, threshold="hot_leave"}})', "hot_leave"),
                    line(f'max({limit}, threshold="critical"}})', "critical"),
                    line(f'max({limit}, threshold="emergency"}})', "emergency"),
                ],
                Values(unit="celsius", empty="no reading"),
                overrides=[
                    fixed("hot", ORANGE, dashed=True),
                    fixed("hot_leave", SKY, dashed=True),
                    fixed("critical", VERMILION, dashed=True),
                    fixed("emergency", GREY, dashed=True),
                ],
            ),
            lines(
                "All thermal zones, and where the kernel powers off",
                "Every zone of the board. At a critical trip point the kernel powers the board off"
                " at once.",
                [
                    line(f"npu_thermal_zone_celsius{{{HERE}}}", "{{node}} {{zone}}"),
                    line(
                        f'min(npu_temperature_limit_celsius{{{HERE}, trip=~"critical.*"}})',
                        "powers off",
                    ),
                ],
                Values(unit="celsius", empty="no thermal zones"),
                overrides=[fixed("powers off", VERMILION, dashed=True)],
            ),
            timeline(
                "Heat state over time",
                "What the guard made of the temperature over time.",
                [line(f"node:npu_heat_state:level{{{KEPT}}}", "{{node}}")],
                Values(unit="none", empty="no guard", mappings=heat()),
                height=6,
            ),
            timeline(
                "Cooling devices",
                "Throttle step in force: 0 is none. Fans are cooling devices, too.",
                [line(f"npu_cooling_device_state{{{HERE}}}", "{{node}} {{cooling_device}}")],
                Values(unit="none", empty="This board has no cooling device"),
                height=6,
            ),
            lines(
                "Changes of the heat state",
                "Changes in each interval. Many an hour: NpuThermalGuardFlapping says what to do.",
                [
                    line(
                        "sum by (node) (increase(npu_thermal_guard_node_transitions_total"
                        f"{{{HERE}}}[$__rate_interval]))",
                        "{{node}}",
                    )
                ],
                Values(unit="short", empty="no guard", low=0),
                height=6,
            ),
            lines(
                "Slots, by state",
                "What the plugin lists: healthy slots are on offer or in use, withdrawn ones are"
                " held back (the table above says why), unhealthy ones are broken.",
                [
                    line(
                        f"sum by (resource, state) (npu_device_plugin_slots{{{HERE}}})",
                        "{{resource}} {{state}}",
                    ),
                    line(
                        f"sum by (resource) (npu_device_plugin_allocated{{{HERE}}})",
                        "{{resource}} in use",
                    ),
                ],
                Values(unit="short", empty="no plugin", low=0),
                height=6,
            ),
        ],
    )


def _card() -> Row:
    return Row(
        title="What the card tells besides",
        collapsed=True,
        panels=[
            lines(
                "Power drawn",
                "As the vendor's tool tells it. On a card of two chips the first tells both.",
                [line(f"npu_power_watts{{{DEVICE}}}", "{{node}} {{device}}")],
                Values(unit="watt", empty="This NPU does not tell its power", low=0),
                width=8,
            ),
            lines(
                "Memory of its own",
                "Size and use of a card's memory; NPUs that share the board's memory have none.",
                [
                    line(
                        f"npu_memory_size_bytes{{{DEVICE}}}", "{{node}} {{device}} {{memory}} size"
                    ),
                    line(
                        f"npu_memory_used_bytes{{{DEVICE}}}", "{{node}} {{device}} {{memory}} used"
                    ),
                ],
                Values(unit="bytes", empty="This NPU has no memory of its own", low=0),
                width=8,
            ),
            table(
                "Health in the vendor's words",
                "Some cards leave the factory with an alarm: a change is what matters.",
                [rows(f"max by (node, device, state) (npu_vendor_health{{{DEVICE}}}) == 1")],
                {"node": "Node", "device": "NPU", "state": "State"},
                empty="This NPU does not judge itself",
                size=(8, 8),
            ),
        ],
    )


def _readings() -> Row:
    return Row(
        title="Quality of the readings",
        collapsed=True,
        panels=[
            lines(
                "Sampled time",
                "Part of the time that is covered by load samples. Below 100 % there are gaps;"
                " utilisation is not distorted by them.",
                [
                    line(
                        "min by (node, device) (rate(npu_core_sampled_seconds_total"
                        f"{{{DEVICE}}}[$__rate_interval]))",
                        "{{node}} {{device}}",
                    )
                ],
                Values(unit="percentunit", empty="no samples", low=0),
                width=8,
            ),
            lines(
                "Impossible readings",
                "Loads above 100 % that were taken as 100 %, and temperatures that were dropped.",
                [
                    line(
                        "sum by (node) (increase(npu_load_out_of_range_total"
                        f"{{{DEVICE}}}[$__rate_interval]))",
                        "{{node}} load",
                    ),
                    line(
                        "sum by (node) (increase(npu_temperature_implausible_total"
                        f"{{{HERE}}}[$__rate_interval]))",
                        "{{node}} temperature",
                    ),
                ],
                Values(unit="short", empty="no exporter", low=0),
                width=8,
            ),
            lines(
                "Failed readings",
                "Readings that failed, by collector, in each interval; the exporter's log names"
                " path and reason.",
                [
                    line(
                        "sum by (node, collector) (increase(npu_exporter_read_errors_total"
                        f"{{{HERE}}}[$__rate_interval]))",
                        "{{node}} {{collector}}",
                    )
                ],
                Values(unit="short", empty="no exporter", low=0),
                width=8,
            ),
            lines(
                "Contiguous memory",
                "The area that drivers without an IOMMU allocate from. When it is full, loading a"
                " model fails.",
                [
                    line(f"npu_memory_cma_size_bytes{{{HERE}}}", "{{node}} size"),
                    line(f"npu_memory_cma_free_bytes{{{HERE}}}", "{{node}} free"),
                ],
                Values(unit="bytes", empty="This board has no such area", low=0),
                width=12,
            ),
            lines(
                "Memory of the daemons",
                "Resident memory of exporter and plugin.",
                [line(f"process_resident_memory_bytes{{{HERE}}}", "{{node}} {{job}}")],
                Values(unit="bytes", empty="no daemons", low=0),
                width=12,
            ),
        ],
    )


def node() -> Json:
    """Return the dashboard."""
    return dashboard(
        "npu-node",
        "NPU node",
        "One node with an NPU, or a few: load by core and by Pod, clock, heat, and how good the"
        " readings are.",
        [_now(), _load(), _clock(), _heat(), _card(), _readings()],
        variables=[
            variable("node", "Node", f"npu_info{{{RAW}}}"),
            variable("device", "NPU", f'npu_info{{{RAW}, node=~"$node"}}'),
        ],
        nodes='node=~"$node"',
    )
