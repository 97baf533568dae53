"""The Prometheus beside an embedded cluster gets a configuration it accepts."""

import json
import subprocess
from pathlib import Path

from ci import tools
from ci.prometheus import configuration, targets_of


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    """The checker of Prometheus itself finds nothing wrong."""
    pod = {
        "metadata": {"labels": {"app.kubernetes.io/component": "exporter"}},
        "spec": {"nodeName": "node1"},
        "status": {"podIP": "198.18.1.7"},
    }
    targets = tmp_path / "targets.json"
    targets.write_text(json.dumps(targets_of([pod])))
    file = tmp_path / "prometheus.yaml"
    file.write_text(json.dumps(configuration(targets, scrape_seconds=2.0)))

    done = subprocess.run(
        [tools.promtool(), "check", "config", file], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
