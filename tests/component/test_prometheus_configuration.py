"""The Prometheus beside an embedded cluster gets a configuration it accepts."""

import json
import subprocess
from pathlib import Path

from ci import tools
from ci.prometheus import configuration


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    """promtool finds nothing wrong."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    file = tmp_path / "prometheus.yaml"
    file.write_text(json.dumps(configuration(kubeconfig, scrape_seconds=2.0)))

    done = subprocess.run(
        [tools.promtool(), "check", "config", file], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
