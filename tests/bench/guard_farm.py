"""Exporters and plugins of a whole fleet in one process: each loopback address is a node.

``python -m tests.bench.guard_farm PORT`` listens on all addresses and answers by the address it was
asked at, with the page of an exporter or, at ``/dra``, of a plugin that serves claims. Lines on its
standard input change boards: ``heat ADDRESS`` lets one warm up along ``HEATING``, ``cool ADDRESS``
puts it back, ``dead ADDRESS`` makes it take connections and say nothing, which costs a reader more
than a closed port does.
"""

import asyncio
import json
import math
import sys
import time
from dataclasses import dataclass, field
from typing import Final

from npu.names import DRA_DRIVERS

_END = b"\r\n\r\n"
_HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"
_BACKLOG = 4096

_PAGE = """\
# HELP npu_info The NPUs of this node.
# TYPE npu_info gauge
npu_info{{device="npu0",vendor="rockchip",model="rk3588",driver="rknpu",driver_version="0.9.8",\
mode="drm",cores="3",board="Orange Pi 5 Plus",simulated="false"}} 1
# TYPE npu_temperature_celsius gauge
npu_temperature_celsius{{device="npu0",zone="npu-thermal"}} {celsius:.3f}
# TYPE npu_temperature_limit_celsius gauge
npu_temperature_limit_celsius{{zone="npu-thermal",trip="critical"}} 115
npu_temperature_limit_celsius{{zone="soc-thermal",trip="passive"}} 75
npu_temperature_limit_celsius{{zone="soc-thermal",trip="passive-1"}} 85
npu_temperature_limit_celsius{{zone="soc-thermal",trip="critical"}} 115
# TYPE npu_frequency_hertz gauge
npu_frequency_hertz{{device="npu0"}} 1e+09
# TYPE npu_core_busy_seconds_total counter
npu_core_busy_seconds_total{{device="npu0",core="0"}} {busy:.2f}
npu_core_busy_seconds_total{{device="npu0",core="1"}} {busy:.2f}
npu_core_busy_seconds_total{{device="npu0",core="2"}} {busy:.2f}
# TYPE npu_core_sampled_seconds_total counter
npu_core_sampled_seconds_total{{device="npu0",core="0"}} {sampled:.2f}
npu_core_sampled_seconds_total{{device="npu0",core="1"}} {sampled:.2f}
npu_core_sampled_seconds_total{{device="npu0",core="2"}} {sampled:.2f}
# TYPE npu_cooling_device_state gauge
npu_cooling_device_state{{cooling_device="pwm-fan"}} 1
npu_cooling_device_state{{cooling_device="thermal-cpufreq-0"}} 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A first-order rise: ``start`` to ``end`` °C with a time constant in seconds."""

    start: float
    end: float
    tau_seconds: float

    def celsius(self, seconds: float) -> float:
        """Return the temperature so long after the load came."""
        return self.end + (self.start - self.end) * math.exp(-seconds / self.tau_seconds)


#: The die of a bare board under load, without its slow part.
HEATING: Final = Curve(start=52.0, end=92.0, tau_seconds=10.0)


def page(celsius: float, sampled: float) -> str:
    """Return an exporter's page; ``sampled`` are seconds since it began, most of them busy."""
    return _PAGE.format(celsius=celsius, busy=0.6 * sampled, sampled=sampled)


def offer(node: str) -> str:
    """Return a plugin's page: one device, registered with the kubelet."""
    attributes = {
        "resource": "rockchip.com/npu",
        "vendor": "rockchip",
        "model": "rk3588",
        "driver": "rknpu",
        "driverVersion": "0.9.8",
        "cores": 3,
        "simulated": False,
    }
    device = {"name": "npu0", "state": "healthy", "reason": "", "attributes": attributes}
    driver = {"name": DRA_DRIVERS["rknpu"], "registered": True, "devices": [device], "claims": []}
    return json.dumps({"pool": node, "drivers": [driver]})


@dataclass(slots=True)
class _Fleet:
    heated_at: dict[str, float] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    began: float = field(default_factory=time.monotonic)

    def page(self, address: str) -> bytes:
        """Return what the exporter at ``address`` says now; values depend on time alone."""
        now = time.monotonic()
        heated = self.heated_at.get(address)
        # Everyday load: a slow wave of two degrees, at another phase on each board.
        wave = 2.0 * math.sin(now / 60 + hash(address) % 628 / 100)
        celsius = HEATING.start + wave if heated is None else HEATING.celsius(now - heated)
        sampled = now - self.began + 100.0
        return page(celsius, sampled).encode()

    def obey(self, line: str) -> None:
        """Change boards as a line of the standard input says."""
        order, *addresses = line.split()
        for address in addresses:
            if order == "heat":
                self.heated_at[address] = time.monotonic()
            elif order == "cool":
                self.heated_at.pop(address, None)
            elif order == "dead":
                self.dead.add(address)


class _Connection(asyncio.Protocol):
    def __init__(self, fleet: _Fleet) -> None:
        self._fleet = fleet
        self._asked = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._asked += data
        if self._transport is None or not self._asked.endswith(_END):
            return
        address = str(self._transport.get_extra_info("sockname")[0])
        if address not in self._fleet.dead:
            plugin = self._asked.startswith(b"GET /dra ")
            body = offer(node_at(address)).encode() if plugin else self._fleet.page(address)
            self._transport.write(_HEAD + body)
            self._transport.close()


async def serve(port: int) -> None:
    """Serve until the standard input ends."""
    fleet = _Fleet()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(fleet), "0.0.0.0", port, backlog=_BACKLOG)
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    async with server:
        while line := await orders.readline():
            fleet.obey(line.decode())


def address_of(number: int) -> str:
    """Return the loopback address of a node by its number."""
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{number % 250 + 1}"


def name_of(number: int) -> str:
    """Return the name of a node by its number."""
    return f"board{number:05}"


def node_at(address: str) -> str:
    """Return the name of the node at a loopback address."""
    _, millions, hundreds, ones = (int(part) for part in address.split("."))
    return name_of((millions - 1) * 62500 + hundreds * 250 + ones - 1)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
