"""A headless Chromium driven over its DevTools protocol, and axe-core to judge pages.

Chromium is the machine's own, or Debian's, installed when missing; axe-core comes out of a pinned
wheel. A new profile for every browser, removed with it.
"""

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import websocket

from ci import system, wheels
from ci.cache import cache_dir
from ci.wheels import Wheel

Json = dict[str, object]

_CHROMIUM = (system.Need(package="chromium", command="chromium"),)
_AXE = Wheel(
    distribution="axe-playwright-python",
    version="0.1.8",
    sha256="fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8",
)
_START_SECONDS = 60.0
_ANSWER_SECONDS = 60.0
_PHONE_PIXELS = 600


class BrowserError(RuntimeError):
    """Chromium does not start, or a page's script failed."""


def axe() -> str:
    """Return the source of axe-core."""
    target = cache_dir() / "tools" / f"{_AXE.distribution}-{_AXE.version}"
    found = wheels.provide(_AXE, target, wheels.extract)
    return (found / "axe_playwright_python" / "axe.min.js").read_text(encoding="utf-8")


class Page:
    """The one tab of a browser."""

    def __init__(self, socket: websocket.WebSocket) -> None:
        self._socket = socket
        self._calls = 0
        for domain in ("Page", "Runtime"):
            self._call(f"{domain}.enable")

    def open(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load ``url`` in a window of this size, narrow ones as a phone, and wait until it is."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < _PHONE_PIXELS,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        answer = self._call("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        deadline = time.monotonic() + _ANSWER_SECONDS
        while self.value("document.readyState") != "complete":
            if time.monotonic() > deadline:
                raise BrowserError(f"{url} does not finish loading")
            time.sleep(0.1)

    def value(self, expression: str) -> object:
        """Return what JavaScript makes of ``expression``; promises are awaited."""
        answer = self._call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(f"{expression[:80]}: {answer['exceptionDetails']}")
        return cast("Json", answer["result"]).get("value")

    def picture(self) -> bytes:
        """Return the whole page as PNG, beyond the window too."""
        answer = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(str(answer["data"]))

    def overflows(self) -> bool:
        """Tell whether the page is wider than its window."""
        root = "document.documentElement"
        return bool(self.value(f"{root}.scrollWidth > {root}.clientWidth"))

    def complaints(self) -> list[str]:
        """Return what axe-core finds wrong, a line each."""
        self.value(axe())
        found = self.value("axe.run(document, {resultTypes: ['violations']})")
        violations = cast("list[Json]", cast("Json", found)["violations"])
        return [
            f"{one['id']}: {one['help']}: {node['html']}"
            for one in violations
            for node in cast("list[Json]", one["nodes"])
        ]

    def _call(self, method: str, **parameters: object) -> Json:
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": parameters}))
        while True:
            message = cast("Json", json.loads(self._socket.recv()))
            if message.get("id") == self._calls:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error']}")
                return cast("Json", message["result"])


class Browser:
    """A running Chromium; a context manager that gives its page."""

    def __init__(self) -> None:
        self._profile: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: websocket.WebSocket | None = None

    def __enter__(self) -> Page:
        system.ensure(_CHROMIUM, purpose="the tests of pages")
        self._profile = Path(tempfile.mkdtemp(prefix="npu-browser-"))
        self._process = subprocess.Popen(
            [
                *(str(system.which("chromium")), "--headless=new", "--no-sandbox"),
                *("--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"),
                *("--no-first-run", "--no-proxy-server", "--hide-scrollbars"),
                *("--remote-debugging-port=0", f"--user-data-dir={self._profile}", "about:blank"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"HOME": str(self._profile), "PATH": "/usr/bin:/bin"},
        )
        try:
            # Without an Origin header, which Chromium would have to be told to accept.
            self._socket = websocket.create_connection(
                self._address(), timeout=_ANSWER_SECONDS, suppress_origin=True
            )
            return Page(self._socket)
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its profile."""
        if self._socket is not None:
            with contextlib.suppress(OSError, websocket.WebSocketException):
                self._socket.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._profile is not None:
            shutil.rmtree(self._profile, ignore_errors=True)

    def _address(self) -> str:
        for port in self._ports():
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=5) as answer,
            ):
                for target in json.load(answer):
                    if target["type"] == "page":
                        return str(target["webSocketDebuggerUrl"])
        raise BrowserError(f"chromium does not serve within {_START_SECONDS:.0f} s")

    def _ports(self) -> Iterator[int]:
        """Yield the port that Chromium writes down, again and again until the time is up."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise BrowserError(f"chromium ended with {self._process.returncode}")
            with contextlib.suppress(OSError, ValueError, IndexError):
                path = cast("Path", self._profile) / "DevToolsActivePort"
                yield int(path.read_text().splitlines()[0])
            time.sleep(0.1)
