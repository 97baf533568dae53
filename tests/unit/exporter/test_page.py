"""The landing page: what a person sees, and that foreign text stays text."""

import base64
import hashlib

from exporter import catalogue
from exporter.catalogue import Sample
from exporter.history import Point
from exporter.page import board_view, render_page
from exporter.sampler import DeviceLoad
from npu.model import CoreLoad

INFO = {
    "device": "npu0",
    "vendor": "rockchip",
    "model": "rk3588",
    "driver": "rknpu",
    "driver_version": "0.9.8",
    "mode": "drm",
    "cores": "1",
    "board": "ROCK 5B",
    "library_version": None,
    "simulated": "true",
}
SEEN = {"npu0": DeviceLoad(loads=(CoreLoad(core=0, ratio=0.42),), sampled_at=1.0)}


def board(*, up: float = 1, celsius: float = 60.0, pod: str = "detector-0") -> list[Sample]:
    zone = "npu-thermal"
    return [
        catalogue.INFO.sample(1, **INFO),
        catalogue.UP.sample(up, device="npu0"),
        catalogue.TEMPERATURE.sample(celsius, device="npu0", zone=zone),
        catalogue.ZONE_TEMPERATURE.sample(celsius, zone=zone),
        catalogue.TEMPERATURE_LIMIT.sample(115, zone=zone, trip="critical"),
        catalogue.TEMPERATURE_LIMIT.sample(85, zone=zone, trip="passive"),
        catalogue.FREQUENCY.sample(8e8, device="npu0"),
        catalogue.FREQUENCY_MAX.sample(8e8, device="npu0"),
        catalogue.FREQUENCY_HARDWARE_MAX.sample(1e9, device="npu0"),
        catalogue.PODRESOURCES_UP.sample(1),
        catalogue.ALLOCATION_INFO.sample(
            1, device="npu0", namespace="team-a", pod=pod, container="c", resource="r/npu"
        ),
    ]


def past(device: str) -> tuple[Point, ...]:
    """Return a minute in which the load rose, with an unknown temperature in its midst."""
    if device != "npu0":
        return ()
    return tuple(
        Point(at=5.0 * n, load=n / 12, celsius=None if n == 6 else 50.0 + n) for n in range(13)
    )


def test_page_shows_the_board_now() -> None:
    """Load, temperature against its lowest limit, capped clock and holder, marked as simulated."""
    text = render_page(board(), SEEN, past, []).body.decode()
    for shown in ("ROCK 5B", "simulated", "42 %", "60.0 °C", "passive at 85 °C", "800 MHz"):
        assert shown in text
    assert "capped" in text
    assert "team-a/detector-0" in text


def test_page_has_no_external_asset_and_fits_a_phone() -> None:
    """It works in a closed network and says so to the browser."""
    response = render_page(board(), SEEN, past, [])
    text = response.body.decode()
    assert "http:" not in text
    assert "https:" not in text
    assert " src=" not in text
    assert 'name="viewport"' in text
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_only_the_page_s_own_script_may_run() -> None:
    """The browser is told its hash; every other script in the text is refused by it."""
    response = render_page(board(), SEEN, past, [])
    text = response.body.decode()
    script = text.partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in response.headers["Content-Security-Policy"]
    assert text.count("<script") == 1


def test_history_is_drawn_and_told() -> None:
    """Load and temperature have a line each, in words for those who do not see it."""
    (device,) = board_view(board(), SEEN, past, []).devices
    load, temperature = device.charts
    assert load.summary == "Load of all cores in the last minute: 0 to 100 %, last 100 %"
    assert temperature.summary.endswith("50 to 62 °C, last 62 °C; limit 85 °C")
    assert load.path.count("M") == 1
    assert temperature.path.count("M") == 2, "an unknown value breaks the line"
    text = render_page(board(), SEEN, past, []).body.decode()
    assert text.count("<svg") == 2
    assert load.summary in text


def test_device_without_history_has_no_empty_chart() -> None:
    """Right after the start there is nothing to draw."""
    (device,) = board_view(board(), SEEN, lambda _: (), []).devices
    assert device.charts == ()


def test_foreign_text_stays_text() -> None:
    """A name from outside cannot bring markup along."""
    text = render_page(board(pod="<script>alert(1)</script>"), SEEN, past, ["<b>"]).body.decode()
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;" in text


def test_unknown_load_is_not_shown_as_zero() -> None:
    """After a failure the last load is gone from the page and the reason is on it."""
    view = board_view(board(up=0), SEEN, past, ["load of npu0 cannot be read"])
    assert view.devices[0].cores == ()
    assert not view.devices[0].load_known
    assert view.problems == ("load of npu0 cannot be read",)


def test_colour_follows_the_distance_to_the_limit() -> None:
    """At the passive trip point of 85 °C a zone is hot, within 10 degrees of it warm."""
    states = [
        zone.state
        for celsius in (74.0, 76.0, 85.0)
        for zone in board_view(board(celsius=celsius), SEEN, past, []).zones
    ]
    assert states == ["cool", "warm", "hot"]


def test_empty_board_is_a_page_too() -> None:
    """No NPU, no sensors, unusable hardware: each in words."""
    text = render_page([], {}, past, []).body.decode()
    assert "No NPU with a working driver" in text
    text = render_page(
        [catalogue.HARDWARE_PRESENT.sample(1, reason="driver_not_bound")], {}, past, []
    ).body.decode()
    assert "driver_not_bound" in text
