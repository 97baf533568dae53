"""Names that more than one service must agree on."""

from typing import Final

#: Extended resources by driver. Programs for one driver do not run on the other.
RESOURCE_RKNPU: Final = "rockchip.com/npu"
RESOURCE_ROCKET: Final = "rockchip.com/npu-rocket"
#: Extended resources by model of Ascend chip, as Huawei's own device plugin calls them.
RESOURCES_ASCEND: Final = {
    "ascend910": "huawei.com/Ascend910",
    "ascend910b": "huawei.com/Ascend910",
    "ascend910c": "huawei.com/Ascend910",
    "ascend950": "huawei.com/npu",
    "ascend310p": "huawei.com/Ascend310P",
    "ascend310": "huawei.com/Ascend310",
    "ascend310b": "huawei.com/Ascend310",
}
#: All of them by default, sorted.
RESOURCES: Final = tuple(sorted({RESOURCE_RKNPU, RESOURCE_ROCKET, *RESOURCES_ASCEND.values()}))

#: Drivers of Dynamic Resource Allocation, by kernel driver; Ascend chips have one of ours,
#: as `npu.huawei.com` is the driver of Huawei itself.
DRA_DRIVERS: Final = {"rknpu": "npu.rockchip.com", "rocket": "npu-rocket.rockchip.com"}
DRA_DRIVER_ASCEND: Final = "ascend.npu-platform.io"
#: All of them, sorted.
ALL_DRA_DRIVERS: Final = tuple(sorted({*DRA_DRIVERS.values(), DRA_DRIVER_ASCEND}))

# Metrics of the exporter that the thermal guard reads.
METRIC_INFO: Final = "npu_info"
METRIC_TEMPERATURE: Final = "npu_temperature_celsius"
METRIC_TEMPERATURE_LIMIT: Final = "npu_temperature_limit_celsius"
METRIC_CORE_BUSY: Final = "npu_core_busy_seconds_total"
METRIC_CORE_SAMPLED: Final = "npu_core_sampled_seconds_total"
METRIC_FREQUENCY: Final = "npu_frequency_hertz"
METRIC_COOLING_STATE: Final = "npu_cooling_device_state"
METRIC_HARDWARE_PRESENT: Final = "npu_hardware_present"

# Environment a workload gets with its NPU.
ENV_DEVICE: Final = "RKNN_NPU_DEVICE"
ENV_DEVICE_IDS: Final = "NPU_DEVICE_IDS"
ENV_CORE_HINT: Final = "NPU_CORE_HINT"
ENV_LIBRARY_DIR: Final = "NPU_LIBRARY_DIR"

#: Where a simulated board lies on a node, and the prefix kubelet and runtime see it under.
SIMULATED_BOARD_DIR: Final = "/var/lib/npu-platform/board"
#: A file at the root of a simulated board's tree; its presence marks every reading as simulated.
SIMULATED_MARKER: Final = "/simulated"
