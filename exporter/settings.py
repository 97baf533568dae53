"""The exporter's configuration file."""

from pathlib import Path
from typing import Annotated

import msgspec

from daemon import config

DEFAULT_PATH = Path("/etc/npu-platform/exporter.yaml")


class Settings(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """Policy; every key is optional.

    ``resource_prefixes``: resources whose name begins with one of these are NPUs.
    ``collector_deadline_seconds``: how long a scrape waits for a collector at most.
    ``pod_retention_seconds``: how long a Pod's counters outlive its last hold.
    """

    resource_prefixes: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], msgspec.Meta(min_length=1)
    ] = ("rockchip.com/", "huawei.com/")
    collector_deadline_seconds: Annotated[float, msgspec.Meta(gt=0, le=60)] = 2.0
    pod_retention_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 300.0


def load(path: Path) -> Settings:
    """Read ``path``; the default path may be missing. Raises ConfigError."""
    if path == DEFAULT_PATH and not path.exists():
        return Settings()
    return config.load(path, Settings)
