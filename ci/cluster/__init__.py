"""The embedded cluster: real Kubernetes on one machine, without Docker and without a registry.

A cluster ("instance") is a network namespace with a bridge, in which the control plane runs.
A node is a network, process, mount and host-name namespace of its own on that bridge, with a
containerd, a kubelet and a kube-proxy. Only one thing touches the machine's own network: a
veth pair that leads into the bridge. See docs/cluster.md.
"""

from ci.cluster.cluster import Cluster, ClusterError

__all__ = ["Cluster", "ClusterError"]
