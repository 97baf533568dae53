"""Which files a program needs beside the chip, per Ascend product.

Names and paths are those of Huawei's device plugin and container runtime (Ascend/mind-cluster,
``ascend-device-plugin`` and ``ascend-docker-runtime``).
"""

from dataclasses import dataclass

#: Chip by PCI device id, vendor 0x19e5 (driver ``devdrv_device_driver``); the names are models.
CHIPS: dict[int, str] = {
    0xD100: "ascend310",
    0xD500: "ascend310p",
    0xD801: "ascend910",
    0xD802: "ascend910b",
    0xD803: "ascend910c",
}
MANAGER = "/dev/davinci_manager"
#: Preferred on boards with a 310B; it appears in the container under the usual name.
DOCKER_MANAGER = "/dev/davinci_manager_docker"

_DRIVER_FILES = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/include",
    "/usr/local/Ascend/driver/tools",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/etc/ascend_install.info",
    "/etc/hccn.conf",
    "/var/queue_schedule",
)
_SOC_FILES = (
    "/usr/local/bin/npu-smi",
    "/usr/local/sbin/npu-smi",
    "/etc/hdcBasic.cfg",
    "/etc/sys_version.conf",
    "/etc/ascend_install.info",
    "/var/queue_schedule",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A kind of machine. All paths are given out only where they exist on the board.

    ``nodes`` come with every chip, besides manager and chip; ``folders`` are directories all of
    whose nodes do. ``files`` are mounted read-only at their own path.
    """

    name: str
    nodes: tuple[str, ...]
    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = _DRIVER_FILES


#: Accelerator cards: 310, 310P, 910A, 910B (A2), 910C (A3).
CARD = Product(name="card", nodes=("/dev/devmm_svm", "/dev/hisi_hdc", "/dev/dvpp_cmdlist"))
#: A5: no devmm_svm, no dvpp, and the nodes of two buses.
A5 = Product(
    name="a5",
    nodes=("/dev/hisi_hdc",),
    folders=("/dev/uburma", "/dev/ummu"),
    files=(*_DRIVER_FILES, "/etc/hccl_rootinfo.json", "/usr/local/Ascend/driver/topo"),
)
#: 310B: Atlas 200I DK A2 and Atlas 500 A2, a computer of its own.
SOC_310B = Product(
    name="310b",
    nodes=(
        *("/dev/svm0", "/dev/ts_aisle", "/dev/upgrade", "/dev/sys", "/dev/vdec", "/dev/vpc"),
        *("/dev/pngd", "/dev/venc", "/dev/dvpp_cmdlist", "/dev/log_drv", "/dev/acodec"),
        *("/dev/ai", "/dev/ao", "/dev/vo", "/dev/hdmi"),
    ),
    files=(
        *_SOC_FILES,
        *(
            f"/usr/lib64/lib{name}.so"
            for name in (
                *("aicpu_processer", "aicpu_prof", "aicpu_sharder", "aicpu_scheduler", "adump"),
                *("tsd_eventclient", "dcmi", "mpi_dvpp_adapter", "stackcore", "mmpa", "drvdsmi"),
            )
        ),
        "/usr/lib64/libsemanage.so.2",
        "/usr/lib64/aicpu_kernels",
        "/usr/local/Ascend/driver/lib64",
        "/etc/ld.so.conf.d/mind_so.conf",
        "/var/slogd",
        "/var/dmp_daemon",
    ),
)
#: Atlas 200I SoC A1, a 310P that is a computer of its own.
SOC_A1 = Product(
    name="200i-soc-a1",
    nodes=(
        *("/dev/vpc", "/dev/vdec", "/dev/sys", "/dev/spi_smbus", "/dev/user_config"),
        *("/dev/ts_aisle", "/dev/svm0", "/dev/log_drv", "/dev/memory_bandwidth", "/dev/upgrade"),
        *("/dev/event_sched", "/dev/xsmem_dev"),
    ),
    files=_SOC_FILES,
)
#: Atlas 200 as root complex, a 310 that is a computer of its own.
SOC_200 = Product(
    name="200",
    nodes=(
        *("/dev/svm0", "/dev/log_drv", "/dev/event_sched", "/dev/upgrade", "/dev/hi_dvpp"),
        *("/dev/memory_bandwidth", "/dev/ts_aisle", "/dev/dvpp_cmdlist"),
    ),
    files=(
        *_SOC_FILES,
        "/usr/local/Ascend/driver/lib64",
        "/usr/local/Ascend/driver/tools",
        "/home/data/miniD/driver/lib64",
        "/usr/local/dcmi",
    ),
)

#: Machines without an accelerator on the PCI bus, by a node that only they have, and their chip.
#: The order decides: a node may be on more than one.
SOCS: tuple[tuple[str, Product, str], ...] = (
    (DOCKER_MANAGER, SOC_310B, "ascend310b"),
    ("/dev/spi_smbus", SOC_A1, "ascend310p"),
    ("/dev/hi_dvpp", SOC_200, "ascend310"),
)
#: Evidence of an A5, whose PCI device id is not published.
A5_EVIDENCE = "/dev/uburma"
A5_MODEL = "ascend950"
#: Model of a chip that nothing identifies. It is offered only where resourceNames names it.
UNKNOWN_MODEL = "ascend"
#: Ending of the model of a virtual NPU, a part of a chip.
VIRTUAL = "-vnpu"
