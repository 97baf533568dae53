"""Grafana dashboards from one description: ``python -m ci.dashboards [--check]``.

The JSON below ``charts/npu-platform/dashboards`` is what this package writes. A module per
dashboard says what is shown; the others say how Grafana wants to hear it.
"""
