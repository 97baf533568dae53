"""Whether a device may be offered: a probe that opens nothing, and a judgement with a memory.

An unprivileged container cannot open a device node it was not granted (the device cgroup answers
EPERM), so the probe looks at files around the device. What cannot be measured is unknown, which
changes nothing: only evidence of a fault takes a device away, and only evidence over a while brings
it back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from npu.errors import ImplausibleError, MissingError, ReadError
from npu.host import Host
from npu.model import DeviceNode, Npu, Refused
from npu.registry import Driver

Verdict = Literal["good", "bad", "unknown"]
Reason = Literal[
    "ok",
    "recovering",
    "lost",
    "node_missing",
    "not_a_device",
    "driver_not_bound",
    "unmeasured",
    # What the scan says about hardware it cannot offer.
    "node_disabled",
    "no_device_node",
    # What only probes that are asked for can see.
    "open_failed",
    "open_timeout",
    "library_unusable",
    "stuck",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one probe saw."""

    verdict: Verdict
    reason: Reason
    detail: str = ""


GOOD = Finding(verdict="good", reason="ok")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """The judgement of a device and why.

    ``good_since`` is the monotonic time since which an unhealthy device has looked well without a
    break, None where it does not.
    """

    healthy: bool
    reason: Reason
    detail: str = ""
    good_since: float | None = None


def advance(
    state: HealthState | None, finding: Finding, *, now: float, recover_after_seconds: float
) -> HealthState:
    """Return the judgement after ``finding``; ``state`` is None for a device never seen before.

    ========= ======================== ==========================================
    before    finding                  after
    ========= ======================== ==========================================
    new       good, unknown            healthy
    healthy   good, unknown            healthy (the reason tells which)
    any       bad                      unhealthy at once
    unhealthy good, less than the hold unhealthy, ``recovering``
    unhealthy good for the hold        healthy
    unhealthy unknown                  unhealthy; a recovery starts over
    ========= ======================== ==========================================
    """
    if finding.verdict == "bad":
        return HealthState(healthy=False, reason=finding.reason, detail=finding.detail)
    if state is None or state.healthy:
        return HealthState(healthy=True, reason=finding.reason, detail=finding.detail)
    if finding.verdict == "unknown":
        return HealthState(healthy=False, reason=state.reason, detail=finding.detail)
    good_since = now if state.good_since is None else state.good_since
    if now - good_since >= recover_after_seconds:
        return HealthState(healthy=True, reason="ok")
    return HealthState(
        healthy=False,
        reason="recovering",
        detail=f"looks well; offered again after {recover_after_seconds:g} s of that",
        good_since=good_since,
    )


def absence(npu: Npu, refused: Sequence[Refused]) -> Finding:
    """Return what it means that a scan does not list ``npu`` any more.

    A scan that could not read says nothing about the device; otherwise it is lost, and the reason
    the scan gave for the same platform device tells more.
    """
    for item in refused:
        if item.what == npu.unit and item.why != "unreadable":
            return Finding(verdict="bad", reason=item.why, detail=item.detail)
    for item in refused:
        if item.why == "unreadable":
            return Finding(verdict="unknown", reason="unmeasured", detail=item.detail)
    return Finding(
        verdict="bad", reason="lost", detail=f"{npu.unit} is not there any more; see the kernel log"
    )


def probe(host: Host, driver: Driver, npu: Npu) -> Finding:
    """Look at the files around ``npu``; never opens its device nodes.

    Bad: a node is gone or no character device, or the driver is not bound. Unknown: something could
    not be read, or the driver's load file makes no sense (the NPU may work all the same). A load
    file that is absent is a matter of the kernel's configuration and says nothing.
    """
    findings = [_probe_node(host, node) for node in npu.nodes]
    findings.append(_probe_binding(host, driver, npu))
    findings.append(_probe_load(host, driver, npu))
    for verdict in ("bad", "unknown"):
        for finding in findings:
            if finding.verdict == verdict:
                return finding
    return GOOD


def worse(first: Finding, second: Finding) -> Finding:
    """Return the finding that matters: bad before unknown before good."""
    ranks: dict[Verdict, int] = {"bad": 0, "unknown": 1, "good": 2}
    return min(first, second, key=lambda finding: ranks[finding.verdict])


def _probe_node(host: Host, node: DeviceNode) -> Finding:
    try:
        number = host.device_number(host.real_path(node.stable_path))
    except MissingError as error:
        return Finding(verdict="bad", reason="node_missing", detail=str(error))
    except ReadError as error:
        return Finding(verdict="unknown", reason="unmeasured", detail=str(error))
    if number is None:
        return Finding(
            verdict="bad",
            reason="not_a_device",
            detail=f"{node.stable_path} is not a character device",
        )
    return GOOD


def _probe_binding(host: Host, driver: Driver, npu: Npu) -> Finding:
    bound = driver.bound(host, npu)
    if bound is None:
        return Finding(
            verdict="unknown",
            reason="unmeasured",
            detail=f"driver link of {npu.unit} is unreadable",
        )
    if not bound:
        return Finding(
            verdict="bad",
            reason="driver_not_bound",
            detail=f"driver {npu.driver} is not bound to {npu.unit}; see dmesg on the node",
        )
    return GOOD


def _probe_load(host: Host, driver: Driver, npu: Npu) -> Finding:
    try:
        driver.load(host, npu)
    except MissingError:
        return GOOD
    except (ReadError, ImplausibleError) as error:
        return Finding(verdict="unknown", reason="unmeasured", detail=str(error))
    return GOOD
