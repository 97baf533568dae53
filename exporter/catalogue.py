"""Every metric of the exporter: name, type, labels and help, once.

Collectors make samples from these definitions, the exposition prints them, ``docs/metrics.md`` is
generated from them. Names are a contract with dashboards, rules and the thermal guard: a renamed
metric is served under both names for one minor version.
"""

from dataclasses import dataclass
from typing import Final, Literal

from npu import names

Kind = Literal["counter", "gauge", "info"]

#: Collectors, in the order in which a scrape lists them.
COLLECTORS: Final = (
    "identity",
    "load",
    "clock",
    "temperature",
    "cooling",
    "memory",
    "allocation",
    "telemetry",
)

#: Metrics about the exporter itself belong to this pseudo collector.
SELF: Final = "self"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric family. ``name`` is the name of its samples, so counters end in ``_total``."""

    name: str
    kind: Kind
    help: str
    collector: str
    labels: tuple[str, ...] = ()

    def sample(self, value: float, **labels: str | None) -> "Sample":
        """Return a sample; a label that is None or empty is left out of it.

        Raises ValueError for a label that the metric does not have, and for a missing one, and
        OverflowError for a value that no sample can have: in the collector that read it, so that
        the others are served.
        """
        if labels.keys() != set(self.labels):
            raise ValueError(f"{self.name} has labels {self.labels}, not {tuple(labels)}")
        pairs = tuple((name, text) for name in self.labels if (text := labels[name]))
        return Sample(metric=self, value=float(value), labels=pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric, with its (name, value) label pairs."""

    metric: Metric
    value: float
    labels: tuple[tuple[str, str], ...] = ()


CATALOGUE: Final[dict[str, Metric]] = {}


def _metric(name: str, kind: Kind, collector: str, labels: str, text: str) -> Metric:
    metric = Metric(
        name=name, kind=kind, collector=collector, labels=tuple(labels.split()), help=text
    )
    if name in CATALOGUE:
        raise ValueError(f"{name} is defined twice")
    CATALOGUE[name] = metric
    return metric


INFO: Final = _metric(
    names.METRIC_INFO,
    "info",
    "identity",
    "device vendor model driver driver_version mode cores board library_version simulated",
    "An NPU with a working driver, always 1. A label whose value is not known is left out.",
)
CORES: Final = _metric(
    "npu_cores",
    "gauge",
    "identity",
    "device",
    "Number of cores as the driver reports them; absent where it reports none.",
)
HARDWARE_PRESENT: Final = _metric(
    names.METRIC_HARDWARE_PRESENT,
    "gauge",
    "identity",
    "reason",
    "NPU hardware that is present and cannot be used, always 1; absent where there is none.",
)

UP: Final = _metric(
    "npu_up",
    "gauge",
    "load",
    "device",
    "1 when the driver's files were read in the last seconds, 0 when that fails."
    " Absent on a node without an NPU.",
)
CORE_BUSY: Final = _metric(
    names.METRIC_CORE_BUSY,
    "counter",
    "load",
    "device core",
    "Time a job was resident on the core, integrated from the driver's one-second windows."
    " Utilisation is its rate over the rate of npu_core_sampled_seconds_total.",
)
CORE_SAMPLED: Final = _metric(
    names.METRIC_CORE_SAMPLED,
    "counter",
    "load",
    "device core",
    "Time covered by samples of the core's load. A missed or failed sample adds nothing here"
    " and nothing to the busy time.",
)
LOAD_OUT_OF_RANGE: Final = _metric(
    "npu_load_out_of_range_total",
    "counter",
    "load",
    "device",
    "Core loads above 100 % that were taken as 100 %; old drivers overflow.",
)
LOAD_ESTIMATED: Final = _metric(
    "npu_load_estimated",
    "gauge",
    "load",
    "device",
    "1 where the busy time of the device is an estimate: the driver (rocket) measures none, so it"
    " is the time the core's power was on, which is never less. Absent where load is measured.",
)
LAST_SAMPLE: Final = _metric(
    "npu_last_sample_timestamp_seconds",
    "gauge",
    "load",
    "device",
    "Unix time of the last good load sample. It stays when sampling fails, so that its age alerts.",
)
POD_BUSY: Final = _metric(
    "npu_pod_core_busy_seconds_total",
    "counter",
    "allocation",
    "namespace pod attribution",
    "Busy core time of the devices a Pod holds. A device held by several Pods is divided evenly"
    " among them (attribution estimated, else exclusive). Holders are read from the kubelet every"
    " 5 s, which bounds the accuracy at a Pod's begin and end. A series is dropped 5 minutes after"
    " its Pod let go of its devices, and there is none where no load is measured.",
)
UNACCOUNTED_BUSY: Final = _metric(
    "npu_unaccounted_core_busy_seconds_total",
    "counter",
    "allocation",
    "device reason",
    "Busy core time that belongs to no Pod: no_holder (used outside the device plugin, or the"
    " driver is wedged) or holders_unknown (the kubelet did not answer). Absent where no load is"
    " measured.",
)
ALLOCATION_INFO: Final = _metric(
    "npu_device_allocation_info",
    "gauge",
    "allocation",
    "device namespace pod container resource",
    "A container that holds the device now, always 1; read from the kubelet every 5 s.",
)
PODRESOURCES_UP: Final = _metric(
    "npu_podresources_up",
    "gauge",
    "allocation",
    "",
    "1 when the kubelet's PodResources socket answered last time. Absent where it is not asked.",
)

POWER_ON: Final = _metric(
    "npu_power_on",
    "gauge",
    "clock",
    "device",
    "1 when the NPU's power domain is on; 0 is normal for an idle NPU.",
)
FREQUENCY: Final = _metric(
    names.METRIC_FREQUENCY,
    "gauge",
    "clock",
    "device",
    "Clock as devfreq keeps it. Reading does not wake the NPU: an idle one shows its last clock.",
)
FREQUENCY_MIN: Final = _metric(
    "npu_frequency_min_hertz", "gauge", "clock", "device", "Lowest clock allowed now."
)
FREQUENCY_MAX: Final = _metric(
    "npu_frequency_max_hertz", "gauge", "clock", "device", "Highest clock allowed now."
)
FREQUENCY_HARDWARE_MAX: Final = _metric(
    "npu_frequency_hardware_max_hertz",
    "gauge",
    "clock",
    "device",
    "Highest clock of the hardware; a lower npu_frequency_max_hertz means somebody capped it.",
)

TEMPERATURE: Final = _metric(
    names.METRIC_TEMPERATURE,
    "gauge",
    "temperature",
    "device zone",
    "Temperature that the device is judged by; absent when its sensor cannot be read.",
)
ZONE_TEMPERATURE: Final = _metric(
    "npu_thermal_zone_celsius",
    "gauge",
    "temperature",
    "zone",
    "Temperature of every thermal zone of the board; zone is the type the kernel gives it.",
)
TEMPERATURE_LIMIT: Final = _metric(
    names.METRIC_TEMPERATURE_LIMIT,
    "gauge",
    "temperature",
    "zone trip",
    "Trip points of the thermal zones, read every 10 s. Several of one kind are numbered"
    " (passive-0, passive-1).",
)
TEMPERATURE_IMPLAUSIBLE: Final = _metric(
    "npu_temperature_implausible_total",
    "counter",
    "temperature",
    "",
    "Temperature readings that were dropped because no silicon can have them.",
)

COOLING_STATE: Final = _metric(
    names.METRIC_COOLING_STATE,
    "gauge",
    "cooling",
    "cooling_device",
    "Throttle step in force; 0 is none. Fans are cooling devices too.",
)
COOLING_MAX_STATE: Final = _metric(
    "npu_cooling_device_max_state",
    "gauge",
    "cooling",
    "cooling_device",
    "Highest throttle step of the cooling device.",
)

CMA_SIZE: Final = _metric(
    "npu_memory_cma_size_bytes",
    "gauge",
    "memory",
    "",
    "Size of the contiguous memory area that drivers without an IOMMU allocate from.",
)
CMA_FREE: Final = _metric(
    "npu_memory_cma_free_bytes", "gauge", "memory", "", "Free part of the contiguous memory area."
)

POWER: Final = _metric(
    "npu_power_watts",
    "gauge",
    "telemetry",
    "device",
    "Power as the vendor's tool tells it (Ascend); on a card of two chips the first one's covers"
    " both.",
)
MEMORY_SIZE: Final = _metric(
    "npu_memory_size_bytes",
    "gauge",
    "telemetry",
    "device memory",
    "Size of a memory of the device (Ascend): ddr or hbm; absent where the device has none.",
)
MEMORY_USED: Final = _metric(
    "npu_memory_used_bytes",
    "gauge",
    "telemetry",
    "device memory",
    "Part of that memory in use.",
)
VENDOR_HEALTH: Final = _metric(
    "npu_vendor_health",
    "gauge",
    "telemetry",
    "device state",
    "Health in the words of the vendor's tool (Ascend), 1 for the present state: ok, warning,"
    " alarm, critical or unknown. Some cards leave the factory with an alarm: alert on changes.",
)
TELEMETRY_LAST_SUCCESS: Final = _metric(
    "npu_telemetry_last_success_timestamp_seconds",
    "gauge",
    "telemetry",
    "",
    "Unix time of the last answer of npu-smi; absent while it is not asked.",
)
TELEMETRY_UNATTRIBUTED: Final = _metric(
    "npu_telemetry_unattributed_chips",
    "gauge",
    "telemetry",
    "",
    "Chips that npu-smi shows and that are no device of this board; normal for a chip that was"
    " divided into virtual NPUs.",
)

COLLECTOR_SUCCESS: Final = _metric(
    "npu_scrape_collector_success",
    "gauge",
    SELF,
    "collector",
    "1 when the collector delivered all it should; what a board lacks by design is no failure.",
)
COLLECTOR_DURATION: Final = _metric(
    "npu_scrape_collector_duration_seconds",
    "gauge",
    SELF,
    "collector",
    "Time the collector took in this scrape.",
)
READ_ERRORS: Final = _metric(
    "npu_exporter_read_errors_total",
    "counter",
    SELF,
    "collector",
    "Failed or implausible readings, tolerated ones included; the log names path and reason.",
)
BUILD_INFO: Final = _metric(
    "npu_exporter_build_info",
    "info",
    SELF,
    "version revision python_version",
    "Version of the exporter, always 1.",
)
SCRAPES_IN_FLIGHT: Final = _metric(
    "npu_exporter_scrapes_in_flight", "gauge", SELF, "", "Scrapes being served, this one included."
)
HTTP_REQUESTS: Final = _metric(
    "npu_exporter_http_requests_total", "counter", SELF, "code", "HTTP answers by status code."
)
LOOP_ERRORS: Final = _metric(
    "npu_exporter_loop_errors_total",
    "counter",
    SELF,
    "loop",
    "Steps of a background loop that failed unexpectedly; the log has the traceback.",
)
PROCESS_CPU: Final = _metric(
    "process_cpu_seconds_total", "counter", SELF, "", "CPU time of the exporter."
)
PROCESS_MEMORY: Final = _metric(
    "process_resident_memory_bytes", "gauge", SELF, "", "Resident memory of the exporter."
)
PROCESS_FILES: Final = _metric(
    "process_open_fds", "gauge", SELF, "", "Open file descriptors of the exporter."
)
PROCESS_START: Final = _metric(
    "process_start_time_seconds", "gauge", SELF, "", "Unix time at which the exporter started."
)
