"""A way to hand out NPUs: what it offers, and all in which it differs for a user."""

from dataclasses import dataclass
from functools import partial
from typing import Final

from ci.demo.story import RESOURCE
from ci.kube import until
from tests.cluster.platform.installed import Platform

#: The driver of a Rockchip NPU with the vendor's kernel.
DRIVER: Final = "npu.rockchip.com"
#: Label of what the guard publishes.
SELECTOR: Final = "npu-platform.io/published-by"


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to hand out NPUs, and all in which it differs for a user."""

    name: str
    platform: Platform

    @property
    def claims(self) -> bool:
        """Whether NPUs are handed out by claims."""
        return self.name == "dra"

    def offered(self, node: str) -> int:
        """Return how many NPUs a node offers: in its status, or in ResourceSlices."""
        if not self.claims:
            return int(self.platform.kube.allocatable(RESOURCE)[node] or 0)
        return sum(
            "taints" not in device
            for item in self.platform.kube.items("resourceslices", "-l", SELECTOR)
            if item["spec"]["nodeName"] == node
            for device in item["spec"].get("devices", [])
        )

    def offers(self, count: int = 1) -> None:
        """Wait until both boards offer ``count`` NPUs."""
        for node in self.platform.boards:
            until(
                partial(self.offered, node),
                lambda seen: seen == count,
                seconds=120,
                what=f"{count} NPUs on {node} in mode {self.name}",
            )

    @property
    def waits_because(self) -> str:
        """What the scheduler says about a Pod for which no NPU is free."""
        return "cannot allocate all claims" if self.claims else f"Insufficient {RESOURCE}"

    @property
    def holds_by(self) -> str:
        """The label ``resource`` of the exporter's ``npu_device_allocation_info``."""
        return DRIVER if self.claims else RESOURCE

    @property
    def bare_pod_survives_power_cut(self) -> bool:
        """Whether a Pod without a controller runs again when its board is back."""
        return self.claims

    def install(self, *values: str) -> None:
        """Change the release to this mode."""
        self.platform.install(f"plugin.mode={self.name}", *values)
