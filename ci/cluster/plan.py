"""Names and addresses of an instance, derived from its number. Pure.

Addresses come from 198.18.0.0/15, which is set aside for tests inside one network (RFC 2544)
and never routed on the Internet. Instance N owns the N-th /20 of 198.18.0.0/16 for its network
and its Pods, and the N-th /20 of 198.19.0.0/16 for its Services.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

MAX_INSTANCES = 16
MAX_NODES = 15
API_PORT = 6443

_NETWORKS = tuple(IPv4Network("198.18.0.0/16").subnets(new_prefix=20))
_SERVICES = tuple(IPv4Network("198.19.0.0/16").subnets(new_prefix=20))
_NAME = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,18}[a-z0-9])?$")


class PlanError(ValueError):
    """A name or number that no instance can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """Names and addresses of one node."""

    name: str
    number: int
    address: IPv4Address
    pod_network: IPv4Network
    namespace: str
    cgroup: str
    uplink: str
    """Interface on the bridge's side; the node's own is always ``eth0``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Names and addresses of one instance."""

    name: str
    index: int

    def __post_init__(self) -> None:
        if not _NAME.match(self.name):
            message = (
                f"{self.name!r} cannot name a cluster: up to 20 lower-case letters, digits and "
                "dashes, not starting or ending with a dash"
            )
            raise PlanError(message)
        if not 0 <= self.index < MAX_INSTANCES:
            message = f"cluster number {self.index} is outside 0 to {MAX_INSTANCES - 1}"
            raise PlanError(message)

    @property
    def network(self) -> IPv4Network:
        """All addresses of the instance but those of Services."""
        return _NETWORKS[self.index]

    @property
    def services(self) -> IPv4Network:
        """Addresses of Services; they exist only inside the nodes."""
        return _SERVICES[self.index]

    @property
    def lan(self) -> IPv4Network:
        """The network that the bridge joins: control plane, host and nodes."""
        return next(self.network.subnets(new_prefix=24))

    @property
    def api_address(self) -> IPv4Address:
        """Address of the control plane."""
        return self.lan[1]

    @property
    def host_address(self) -> IPv4Address:
        """Address of the machine itself in the instance's network."""
        return self.lan[2]

    @property
    def api_url(self) -> str:
        """Where the API server listens."""
        return f"https://{self.api_address}:{API_PORT}"

    @property
    def namespace(self) -> str:
        """Network namespace of bridge and control plane."""
        return f"npu-{self.name}"

    @property
    def host_interface(self) -> str:
        """The machine's interface into the instance (at most 15 characters, IFNAMSIZ)."""
        return f"npu{self.index}"

    @property
    def cgroup(self) -> str:
        """Control group above those of the nodes."""
        return f"npu-{self.name}"

    def node(self, number: int) -> NodePlan:
        """Return the plan of node ``number``, counted from 1."""
        if not 1 <= number <= MAX_NODES:
            message = f"node number {number} is outside 1 to {MAX_NODES}"
            raise PlanError(message)
        networks = tuple(self.network.subnets(new_prefix=24))
        return NodePlan(
            name=f"node{number}",
            number=number,
            address=self.lan[10 + number],
            pod_network=networks[number],
            namespace=f"{self.namespace}-node{number}",
            cgroup=f"{self.cgroup}/node{number}",
            uplink=f"node{number}",
        )

    def nodes(self, count: int) -> tuple[NodePlan, ...]:
        """Return the plans of the nodes 1 to ``count``."""
        return tuple(self.node(number) for number in range(1, count + 1))
