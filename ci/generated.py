"""Regenerates everything that is generated and committed: ``python -m ci.generated [--check]``.

Each generator is a module with a command line of its own that takes ``--check``; adding one is one
line in :data:`GENERATORS`.
"""

import argparse
import subprocess
import sys

#: Module and what it writes.
GENERATORS = {
    "kubelet.generate": "kubelet/_proto",
    "exporter.reference": "docs/metrics.md",
    "ci.chart_readme": "charts/npu-platform/README.md",
    "ci.chart_defaults": "charts/npu-platform/files/defaults.json",
    "ci.alerts_reference": "docs/alerts.md",
    "ci.dashboards": "charts/npu-platform/dashboards",
    "ci.boards_reference": "README.md, docs/boards.md, charts/npu-platform/values.schema.json",
    "ci.heat_reference": "docs/thermal.md",
    "ci.traces": "docs/examples/traces",
}


def main(arguments: list[str] | None = None) -> int:
    """Run every generator, also after one failed; return 1 where any did."""
    parser = argparse.ArgumentParser(prog="python -m ci.generated", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    options = ["--check"] if parser.parse_args(arguments).check else []
    failed = [
        f"{what} (python -m {module})"
        for module, what in GENERATORS.items()
        if subprocess.run([sys.executable, "-m", module, *options], check=False).returncode != 0
    ]
    for what in failed:
        print(f"not up to date: {what}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
