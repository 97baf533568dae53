"""A plugin page says what a node offers; nothing on it is taken on trust."""

import json

import pytest

from thermal.dra.offers import node_offer


def page(**changes: object) -> bytes:
    """Return a page with one driver."""
    device = {
        "name": "npu0",
        "state": "healthy",
        "reason": "ok",
        "attributes": {"resource": "rockchip.com/npu", "cores": 3, "simulated": True},
    }
    driver = {"name": "npu.rockchip.com", "registered": True, "devices": [device | changes]}
    return json.dumps({"pool": "node-1", "drivers": [driver]}).encode()


def test_page_is_read() -> None:
    """Pool, driver, registration, devices with attributes of every kind."""
    offer = node_offer(page())

    (driver,) = offer.drivers
    (device,) = driver.devices
    assert (offer.pool, driver.name, driver.registered) == ("node-1", "npu.rockchip.com", True)
    assert (device.name, device.state, device.reason) == ("npu0", "healthy", "ok")
    assert device.attributes == {"resource": "rockchip.com/npu", "cores": 3, "simulated": True}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pool": 1}', "[" * 100_000])
def test_what_is_no_page_is_an_error(text: str) -> None:
    """The reader counts it as a node that did not answer."""
    with pytest.raises((ValueError, TypeError)):
        node_offer(text.encode())


def test_devices_and_drivers_of_others_are_left_out() -> None:
    """A node can neither publish another driver's devices nor names the API server refuses."""
    foreign = {"pool": "n", "drivers": [{"name": "gpu.example.com", "devices": []}, 7]}
    assert node_offer(json.dumps(foreign).encode()).drivers == ()
    odd: list[dict[str, object]] = [
        {"name": "../npu0"},
        {"state": "odd"},
        {"state": []},
        {"name": None},
    ]
    for changes in odd:
        (driver,) = node_offer(page(**changes)).drivers
        assert driver.devices == ()


def test_odd_attributes_are_left_out_or_cut() -> None:
    """The API server would refuse the whole slice for one of them."""
    odd = {
        "bad name": "x",
        "driverVersion": "0.9",
        "float": 1.5,
        "huge": 1 << 60,
        "list": [],
        "text": "x" * 100,
    }

    (driver,) = node_offer(page(attributes=odd, reason="not a label!")).drivers

    (device,) = driver.devices
    assert device.attributes == {"text": "x" * 64}
    assert device.reason == ""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ä" * 40, "ä" * 32),
        ("x" + "ä" * 40, "x" + "ä" * 31),
        ("\U0001f600" * 20, "\U0001f600" * 16),
        ("Rock \ud83d", "Rock ?"),
    ],
)
def test_text_is_cut_by_bytes_as_the_api_server_counts(text: str, kept: str) -> None:
    """And comes back as it was sent: what does not would be written again and again."""
    (driver,) = node_offer(page(attributes={"board": text})).drivers

    assert driver.devices[0].attributes == {"board": kept}


def test_devices_beyond_the_limit_are_counted() -> None:
    """The first ones are published, the others are told."""
    devices = [{"name": f"npu{n}", "state": "healthy"} for n in reversed(range(600))]
    data = {"pool": "n", "drivers": [{"name": "npu.rockchip.com", "devices": [*devices, *devices]}]}

    (driver,) = node_offer(json.dumps(data).encode()).drivers

    assert [device.name for device in driver.devices] == [f"npu{n}" for n in range(256)]
    assert driver.left_out == 344
