"""The board: drivers, readings, board catalogue, thermal model and per-device heat machine.

This package knows no Kubernetes, no HTTP and no Prometheus. What the services must agree on
(device identifiers, metric names read by another service, heat states) has its one home here.
"""
