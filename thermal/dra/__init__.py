"""Dynamic Resource Allocation: the guard publishes the nodes' devices and taints them."""
