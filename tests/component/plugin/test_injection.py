"""What is left on the node while the plugin runs, and after: the CDI file and the clock limit."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

from tests.component.fake_kubelet import FakeKubelet
from tests.component.plugin.plugin_process import FAST, RESOURCE, PluginProcess

Start = Callable[..., PluginProcess]
#: Hot at once, and cool at once.
EAGER = """
thresholds:
  timing: {hotEnterSeconds: 0.2, hotLeaveSeconds: 0.2, hotHoldSeconds: 1, recoveringSeconds: 0.2}
"""


def configured(place: Path, text: str) -> str:
    """Return the option for a configuration with this text."""
    file = place / "injection.yaml"
    file.write_text(f"{FAST}\n{text}\n")
    return f"--config={file}"


def test_cdi_names_resolve_as_long_as_the_plugin_runs(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """Allocate answers a name that the file knows; the file goes with the plugin."""
    kubelet.start()
    cdi = place / "cdi"
    cdi.mkdir()
    plugin = start(configured(place, "deviceInjection: cdi"), f"--cdi-dir={cdi}")
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})

    answer = kubelet.allocate(RESOURCE, "npu0")

    assert [device.name for device in answer.cdi_devices] == ["npu-platform.io/npu=npu0"]
    assert not answer.devices
    assert not answer.mounts
    content = json.loads((cdi / "npu-platform.json").read_text())
    nodes = content["devices"][0]["containerEdits"]["deviceNodes"]
    assert all(Path(node["hostPath"]).is_char_device() for node in nodes)
    assert all(str(board) in node["hostPath"] for node in nodes)
    assert plugin.metric("npu_device_plugin_cdi_file_written") == 1
    (cdi / "npu-platform.json").unlink()
    plugin.wait((cdi / "npu-platform.json").exists)

    assert plugin.end() == 0
    assert list(cdi.iterdir()) == []


def test_not_ready_while_the_runtime_cannot_be_told(
    kubelet: FakeKubelet, start: Start, place: Path
) -> None:
    """A name without a file would keep every container from starting."""
    kubelet.start()
    plugin = start(configured(place, "deviceInjection: cdi"), f"--cdi-dir={place / 'absent'}")
    kubelet.wait_for_devices(RESOURCE, {"npu0": "Healthy"})

    status, text = plugin.get("/readyz")

    assert status == 503
    assert "absent" in text
    (place / "absent").mkdir()
    plugin.wait(plugin.ready)


def test_clock_of_a_hot_board_is_lowered_and_given_back(
    kubelet: FakeKubelet, start: Start, place: Path, board: Path
) -> None:
    """Also by the plugin after one that was killed, and at its end."""
    kubelet.start()
    state = place / "run"
    state.mkdir()
    limit = next((board / "sys/class/devfreq").iterdir()) / "max_freq"
    zone = next(
        zone
        for zone in (board / "sys/class/thermal").glob("thermal_zone*")
        if (zone / "type").read_text().strip() == "npu-thermal"
    )
    options = (configured(place, f"{EAGER}\nheat: {{clampFrequency: true}}"),)
    killed = start(*options, f"--state-dir={state}")

    (zone / "temp").write_text("84000\n")
    killed.wait(lambda: int(limit.read_text()) == 600_000_000)
    assert killed.metric('npu_device_plugin_clamped_hertz{device="npu0"}') == 600_000_000
    killed.end(signal.SIGKILL)
    assert int(limit.read_text()) == 600_000_000

    second = start(*options, f"--state-dir={state}")
    second.wait(lambda: second.logged("Found a clock limit"))
    second.wait(lambda: int(limit.read_text()) == 600_000_000)
    assert second.end() == 0

    assert int(limit.read_text()) == 1_000_000_000
    assert list(state.iterdir()) == []
