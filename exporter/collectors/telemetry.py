"""What the vendor's tool tells about Ascend chips, from its newest answer."""

from exporter import catalogue
from exporter.catalogue import Sample
from exporter.collectors import Reading
from exporter.telemetry import TelemetryError, TelemetryWatch
from npu.drivers.ascend_smi import ChipReading


class TelemetryCollector:
    """Tells power, memory and health; no input or output happens here."""

    name = "telemetry"
    reads_board = False

    def __init__(self, telemetry: TelemetryWatch) -> None:
        self._telemetry = telemetry

    def collect(self) -> Reading:
        """Return what is known now; nothing, and no failure, where telemetry is off."""
        telemetry = self._telemetry
        if not telemetry.on:
            return Reading()
        samples: list[Sample] = []
        missing: list[str] = []
        for npu in telemetry.npus():
            chip = telemetry.chip(npu.id)
            if chip is None:
                missing.append(npu.id)
            else:
                samples.extend(_chip(npu.id, chip))
        if telemetry.answer is not None:
            samples += [
                catalogue.TELEMETRY_LAST_SUCCESS.sample(telemetry.answer.unix),
                catalogue.TELEMETRY_UNATTRIBUTED.sample(telemetry.answer.unattributed),
            ]
        failures: list[Exception] = []
        if missing:
            why = telemetry.error or TelemetryError(f"npu-smi does not show {', '.join(missing)}")
            failures.append(why)
        return Reading(samples=tuple(samples), failures=tuple(failures), counted=True)


def _chip(device: str, chip: ChipReading) -> list[Sample]:
    samples = [catalogue.VENDOR_HEALTH.sample(1, device=device, state=chip.health)]
    if chip.watts is not None:
        samples.append(catalogue.POWER.sample(chip.watts, device=device))
    for name, memory in (("ddr", chip.memory), ("hbm", chip.hbm)):
        if memory is not None:
            labels = {"device": device, "memory": name}
            samples.append(catalogue.MEMORY_SIZE.sample(memory.size_bytes, **labels))
            samples.append(catalogue.MEMORY_USED.sample(memory.used_bytes, **labels))
    return samples
