"""Which of several listed Pods has a device now.

The device manager gives an identifier to one Pod at a time, and to the next one only after that has
ended. Kubelets before 1.34 go on listing Pods that have finished, so that two Pods may be told for
one identifier: the one that came last has it. Pure.
"""

from collections.abc import Iterable
from dataclasses import replace

from kubelet.podresources import PodDevices

_Pod = tuple[str, str]


class Succession:
    """Remembers in which answer of the kubelet each Pod appeared for each identifier."""

    def __init__(self) -> None:
        self._answer = 0
        self._appeared: dict[tuple[str, str], dict[_Pod, int]] = {}

    def living(self, entries: Iterable[PodDevices]) -> tuple[PodDevices, ...]:
        """Return the entries of one answer without what finished Pods have lost to later ones.

        Pods that were there together from the first answer on cannot be told apart and stay.
        Devices of dynamic claims, which Pods may share, stay too.
        """
        listed = tuple(entries)
        self._answer += 1
        before, self._appeared = self._appeared, {}
        for entry in listed:
            pod = (entry.namespace, entry.pod)
            for identifier in () if entry.dynamic else entry.device_ids:
                key = (entry.resource, identifier)
                appeared = before.get(key, {}).get(pod, self._answer)
                self._appeared.setdefault(key, {})[pod] = appeared
        kept = (replace(entry, device_ids=self._kept(entry)) for entry in listed)
        return tuple(entry for entry in kept if entry.device_ids)

    def _kept(self, entry: PodDevices) -> tuple[str, ...]:
        if entry.dynamic:
            return entry.device_ids
        pod = (entry.namespace, entry.pod)
        return tuple(
            identifier
            for identifier in entry.device_ids
            if _is_last(self._appeared[entry.resource, identifier], pod)
        )


def _is_last(appeared: dict[_Pod, int], pod: _Pod) -> bool:
    return appeared[pod] == max(appeared.values())
