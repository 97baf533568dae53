"""Holders of devices, and the busy time given to Pods."""

from exporter import catalogue
from exporter.accounting import Account
from exporter.allocation import AllocationWatch
from exporter.board import BoardWatch
from exporter.collectors import NotScannedError, Reading


class AllocationCollector:
    """Tells the newest allocation; no input or output happens here."""

    name = "allocation"
    reads_board = False

    def __init__(self, watch: BoardWatch, account: Account, allocation: AllocationWatch) -> None:
        self._watch = watch
        self._account = account
        self._allocation = allocation

    def collect(self) -> Reading:
        """Return holders and Pod counters; holders are absent while the kubelet does not tell."""
        board = self._watch.current
        if board is None:
            raise NotScannedError
        now = self._allocation.current
        present = [npu.id for npu in board.inventory.npus]
        known = now.holders is not None or now.error is not None
        answers = [catalogue.PODRESOURCES_UP.sample(now.error is None)] if known else []
        holders = [
            catalogue.ALLOCATION_INFO.sample(
                1,
                device=holder.device,
                namespace=holder.namespace,
                pod=holder.pod,
                container=holder.container,
                resource=holder.resource,
            )
            for holder in now.holders or ()
            if holder.device in present
        ]
        pods = [
            catalogue.POD_BUSY.sample(
                seconds, namespace=pod.namespace, pod=pod.name, attribution=attribution
            )
            for (pod, attribution), seconds in sorted(self._account.pods().items())
        ]
        unaccounted = [
            catalogue.UNACCOUNTED_BUSY.sample(seconds, device=device, reason=reason)
            for device in present
            for reason, seconds in self._account.unaccounted(device).items()
        ]
        failures = () if now.error is None else (now.error,)
        return Reading(
            samples=(*answers, *holders, *pods, *unaccounted), failures=failures, counted=True
        )
