"""The demonstration: from a bare machine to a running platform with simulated boards."""
