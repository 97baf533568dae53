"""Exporter: load, temperature, clock and holders of a board's NPUs for Prometheus.

One process per node. A thread samples the load once a second into counters; everything else is read
when it is asked for. Nothing here writes to the board or wakes its NPU.
"""
