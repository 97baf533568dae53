"""The landing page: this board now, for a person with a phone."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup

from daemon.http import Response
from daemon.version import VERSION
from exporter import catalogue
from exporter.catalogue import Metric, Sample
from exporter.charts import HEIGHT, WIDTH, Chart, load_chart, temperature_chart
from exporter.history import Point
from exporter.sampler import DeviceLoad

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPT = (_TEMPLATES / "board.js").read_text(encoding="utf-8")
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
_HEADERS = {
    # Nothing but the page itself: its own script by its hash, which may ask its own server only.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    f" script-src 'sha256-{_SCRIPT_HASH}'; connect-src 'self'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
}
#: Nearer to its lowest limit than this a temperature is shown as hot, and as warm: at a passive
#: trip the kernel slows the chip down, at a critical one it powers the board off.
_PASSIVE_MARGINS_CELSIUS = (0.0, 10.0)
_CRITICAL_MARGINS_CELSIUS = (30.0, 45.0)
_MEGA = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """A thermal zone: ``limit`` is its lowest trip point, ``state`` cool, warm, hot or unknown."""

    name: str
    celsius: float
    limit: float | None
    limit_kind: str | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreView:
    """A core: load of the last second in percent."""

    number: int
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """A device; what is not known is None."""

    id: str
    facts: tuple[str, ...]
    cores: tuple[CoreView, ...]
    load_known: bool
    zone: ZoneView | None
    power: str | None
    megahertz: int | None
    maximum_megahertz: int | None
    capped: bool
    holders: tuple[Mapping[str, str], ...]
    charts: tuple[Chart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardView:
    """The whole page."""

    title: str
    simulated: bool
    devices: tuple[DeviceView, ...]
    zones: tuple[ZoneView, ...]
    hardware: tuple[str, ...]
    problems: tuple[str, ...]
    holders_known: bool
    version: str


class _Index:
    """Samples by metric and labels."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for sample in samples:
            entry = (dict(sample.labels), sample.value)
            self._samples.setdefault(sample.metric.name, []).append(entry)

    def all(self, metric: Metric, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Return (labels, value) of the samples that have ``labels``."""
        return [
            entry
            for entry in self._samples.get(metric.name, ())
            if labels.items() <= entry[0].items()
        ]

    def value(self, metric: Metric, **labels: str) -> float | None:
        """Return the value of the first such sample."""
        found = self.all(metric, **labels)
        return found[0][1] if found else None


#: The last minutes of a device by its identifier.
Past = Callable[[str], Sequence[Point]]


def board_view(
    samples: Sequence[Sample], seen: Mapping[str, DeviceLoad], past: Past, problems: Sequence[str]
) -> BoardView:
    """Return what the page shows: the very samples of a scrape, the newest load and the past."""
    index = _Index(samples)
    zones = tuple(
        _zone(index, labels["zone"], celsius)
        for labels, celsius in index.all(catalogue.ZONE_TEMPERATURE)
    )
    infos = [labels for labels, _ in index.all(catalogue.INFO)]
    boards = [labels["board"] for labels in infos if "board" in labels]
    return BoardView(
        title=boards[0] if boards else "NPU board",
        simulated=any(labels.get("simulated") == "true" for labels in infos),
        devices=tuple(_device(index, labels, seen, past) for labels in infos),
        zones=zones,
        hardware=tuple(labels["reason"] for labels, _ in index.all(catalogue.HARDWARE_PRESENT)),
        problems=tuple(problems),
        holders_known=index.value(catalogue.PODRESOURCES_UP) == 1,
        version=VERSION,
    )


def _device(
    index: _Index, info: Mapping[str, str], seen: Mapping[str, DeviceLoad], past: Past
) -> DeviceView:
    device = info["device"]
    load = seen.get(device, DeviceLoad())
    load_known = index.value(catalogue.UP, device=device) == 1
    judged = index.all(catalogue.TEMPERATURE, device=device)
    zone = _zone(index, judged[0][0]["zone"], judged[0][1]) if judged else None
    points = past(device)
    charts = (load_chart(points), temperature_chart(points, None if zone is None else zone.limit))
    power = index.value(catalogue.POWER_ON, device=device)
    maximum = index.value(catalogue.FREQUENCY_MAX, device=device)
    highest = index.value(catalogue.FREQUENCY_HARDWARE_MAX, device=device)
    return DeviceView(
        id=device,
        facts=_facts(info),
        cores=tuple(
            CoreView(number=core.core, percent=round(core.ratio * 100)) for core in load.loads
        )
        if load_known
        else (),
        load_known=load_known,
        zone=zone,
        power=None if power is None else ("on" if power else "off"),
        megahertz=_megahertz(index.value(catalogue.FREQUENCY, device=device)),
        maximum_megahertz=_megahertz(maximum),
        capped=maximum is not None and highest is not None and maximum < highest,
        holders=tuple(labels for labels, _ in index.all(catalogue.ALLOCATION_INFO, device=device)),
        charts=tuple(chart for chart in charts if chart is not None),
    )


def _facts(info: Mapping[str, str]) -> tuple[str, ...]:
    """Return model, driver and library in the words of the labels."""
    driver = " ".join(info[name] for name in ("driver", "driver_version") if name in info)
    library = (f"library {info['library_version']}",) if "library_version" in info else ()
    return (info["model"], driver, f"{info['mode']} mode", *library)


def _zone(index: _Index, name: str, celsius: float) -> ZoneView:
    limits = index.all(catalogue.TEMPERATURE_LIMIT, zone=name)
    lowest = min(limits, key=lambda entry: entry[1], default=None)
    state = "unknown"
    if lowest is not None:
        margin = lowest[1] - celsius
        critical = lowest[0]["trip"].startswith("critical")
        hot, warm = _CRITICAL_MARGINS_CELSIUS if critical else _PASSIVE_MARGINS_CELSIUS
        state = "hot" if margin <= hot else "warm" if margin <= warm else "cool"
    return ZoneView(
        name=name,
        celsius=celsius,
        limit=None if lowest is None else lowest[1],
        limit_kind=None if lowest is None else lowest[0]["trip"],
        state=state,
    )


def _megahertz(hertz: float | None) -> int | None:
    return None if hertz is None else round(hertz / _MEGA)


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.from_string((_TEMPLATES / "board.html").read_text(encoding="utf-8"))


def render_page(
    samples: Sequence[Sample], seen: Mapping[str, DeviceLoad], past: Past, problems: Sequence[str]
) -> Response:
    """Return the page."""
    html = _template().render(
        board=board_view(samples, seen, past, problems),
        width=WIDTH,
        height=HEIGHT,
        script=Markup(_SCRIPT),  # noqa: S704 - a file of ours, nothing from outside in it
    )
    return Response(body=html.encode(), content_type="text/html; charset=utf-8", headers=_HEADERS)
