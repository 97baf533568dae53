"""What the board has: NPUs with a driver, and hardware without one."""

from exporter import catalogue
from exporter.board import BoardWatch
from exporter.catalogue import Sample
from exporter.collectors import NotScannedError, Reading
from exporter.names import TEXT_CHARACTERS, bounded
from npu.model import Npu


class IdentityCollector:
    """Tells the newest look at the board; nothing where that look failed."""

    name = "identity"
    reads_board = False

    def __init__(self, watch: BoardWatch) -> None:
        self._watch = watch

    def collect(self) -> Reading:
        """Return identities; no input or output happens here."""
        if self._watch.error is not None:
            return Reading(failures=(self._watch.error,), counted=True)
        board = self._watch.current
        if board is None:
            raise NotScannedError
        samples: list[Sample] = []
        cut: list[Exception] = []
        for npu in board.inventory.npus:
            samples.append(_info(npu, cut, simulated=board.simulated))
            if npu.cores is not None:
                samples.append(catalogue.CORES.sample(npu.cores, device=npu.id))
        samples.extend(
            catalogue.HARDWARE_PRESENT.sample(1, reason=reason)
            for reason in sorted({refused.why for refused in board.inventory.refused})
        )
        return Reading(samples=tuple(samples), tolerated=tuple(cut))


def _info(npu: Npu, cut: list[Exception], *, simulated: bool) -> Sample:
    versions = [library.version for library in npu.libraries if library.version is not None]
    texts = {
        "model": npu.model,
        "driver_version": npu.driver_version,
        "board": npu.board,
        "library_version": versions[0] if versions else None,
    }
    return catalogue.INFO.sample(
        1,
        device=npu.id,
        vendor=npu.vendor,
        driver=npu.driver,
        mode=npu.mode,
        cores=None if npu.cores is None else str(npu.cores),
        simulated="true" if simulated else "false",
        **{
            name: None if text is None else bounded(text, TEXT_CHARACTERS, cut)
            for name, text in texts.items()
        },
    )
