"""The landing page: what a person sees, and that foreign text stays text."""

from exporter import catalogue
from exporter.catalogue import Sample
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


def test_page_shows_the_board_now() -> None:
    """Load, temperature against its lowest limit, capped clock and holder, marked as simulated."""
    text = render_page(board(), SEEN, []).body.decode()
    for shown in ("ROCK 5B", "simulated", "42 %", "60.0 °C", "passive at 85 °C", "800 MHz"):
        assert shown in text
    assert "capped" in text
    assert "team-a/detector-0" in text


def test_page_has_no_external_asset_and_fits_a_phone() -> None:
    """It works in a closed network and says so to the browser."""
    response = render_page(board(), SEEN, [])
    text = response.body.decode()
    assert "//" not in text.replace("<!doctype html>", "")
    assert "<script" not in text
    assert 'name="viewport"' in text
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_foreign_text_stays_text() -> None:
    """A name from outside cannot bring markup along."""
    text = render_page(board(pod="<script>alert(1)</script>"), SEEN, ["<b>"]).body.decode()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "&lt;b&gt;" in text


def test_unknown_load_is_not_shown_as_zero() -> None:
    """After a failure the last load is gone from the page and the reason is on it."""
    view = board_view(board(up=0), SEEN, ["load of npu0 cannot be read"])
    assert view.devices[0].cores == ()
    assert not view.devices[0].load_known
    assert view.problems == ("load of npu0 cannot be read",)


def test_colour_follows_the_distance_to_the_limit() -> None:
    """At the passive trip point of 85 °C a zone is hot, within 10 degrees of it warm."""
    states = [
        zone.state
        for celsius in (74.0, 76.0, 85.0)
        for zone in board_view(board(celsius=celsius), SEEN, []).zones
    ]
    assert states == ["cool", "warm", "hot"]


def test_empty_board_is_a_page_too() -> None:
    """No NPU, no sensors, unusable hardware: each in words."""
    text = render_page([], {}, []).body.decode()
    assert "No NPU with a working driver" in text
    text = render_page(
        [catalogue.HARDWARE_PRESENT.sample(1, reason="driver_not_bound")], {}, []
    ).body.decode()
    assert "driver_not_bound" in text
