"""Which nodes are judged and never written to."""

from thermal.config import Config
from thermal.fleet import NodeStatus
from thermal.objects import NodeRecord


def of_observed_vendors(config: Config, status: NodeStatus) -> bool:
    """Tell whether all devices of a node are of vendors that are only observed."""
    vendors = {device.vendor for device in status.devices}
    return bool(vendors) and vendors <= set(config.observe_vendors)


def only_observes(config: Config, node: NodeRecord, status: NodeStatus) -> bool:
    """Tell whether a node is only observed: by mode, by its own annotation, or by its vendors."""
    return (
        config.mode == "observe"
        or node.override == "observe"
        or of_observed_vendors(config, status)
    )
