"""Queries of panels, and the selectors that every query of a dashboard shares."""

from dataclasses import dataclass

from ci.chart import Json

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

#: Selectors for recorded series, which have no job, and for scraped ones.
RECORDED = 'cluster=~"$cluster"'
RAW = 'cluster=~"$cluster", job=~"$job"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One PromQL expression; ``table`` asks for the values at the end of the range, as rows."""

    expr: str
    legend: str = "__auto"
    table: bool = False

    def target(self, ref: str) -> Json:
        """Return the query as a panel's target called ``ref``."""
        return {
            "refId": ref,
            "datasource": DATASOURCE,
            "expr": " ".join(self.expr.split()),
            "legendFormat": self.legend,
            "editorMode": "code",
            "format": "table" if self.table else "time_series",
            "instant": self.table,
            "range": not self.table,
        }


def line(expr: str, legend: str) -> Query:
    """Return a query over the time range."""
    return Query(expr=expr, legend=legend)


def rows(expr: str) -> Query:
    """Return a query for the rows of a table."""
    return Query(expr=expr, table=True)


def withheld(selector: str) -> str:
    """Return what is tainted, withdrawn or unhealthy, a series each with ``what`` and ``reason``.

    ``selector`` picks series that have a ``node``.
    """
    tainted = f"""
        max by (cluster, node, state) (npu_thermal_guard_node_state{{{selector}}})
        and on (cluster, node)
        max by (cluster, node) (npu_thermal_guard_taint_active{{{selector}}}) == 1"""
    withdrawn = f"""
        sum by (cluster, node, resource, device, reason) (
          npu_device_plugin_slots_withdrawn{{{selector}}}) > 0"""
    unhealthy = f"""
        1 + max by (cluster, node, resource, device, reason) (
          npu_device_plugin_device_health{{{selector}}}) == 1"""
    driverless = f"""
        max by (cluster, node, reason) (npu_hardware_present{{{selector}}})"""
    lowered = f"""
        count by (cluster, node, device) (npu_device_plugin_clamped_hertz{{{selector}}})"""
    lowered = f'label_replace({lowered}, "reason", "heat", "", "")'
    tainted = f'label_replace({tainted}, "reason", "$1", "state", "(.*)")'
    parts = (
        (tainted, "node tainted"),
        (withdrawn, "slots withdrawn"),
        (unhealthy, "NPU unhealthy"),
        (driverless, "no working driver"),
        (lowered, "clock lowered"),
    )
    return " or ".join(f'label_replace({expr}, "what", "{what}", "", "")' for expr, what in parts)
