"""Writes the chart's README from the comments in its values: ``python -m ci.chart_readme``.

A comment directly above a key describes that key. A block without a comment of its own is described
by its keys.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from ci.chart import CHART, KeyPath

README = CHART / "README.md"

#: Characters of a default that a table can show; probes, the longest blocks but one, have 250.
_LONGEST: Final = 400

_HEAD = """\
# npu-platform

Turns a Kubernetes cluster of boards with NPUs into an NPU platform: Pods ask for
`rockchip.com/npu: 1` and get the NPU (device plugin), load and temperature are visible per core,
device, node and Pod (exporter), and boards without fans do not melt (thermal guard).

Needs Kubernetes 1.30 or later and Helm 3.17 or later.

```sh
kubectl create namespace npu-platform
kubectl label namespace npu-platform pod-security.kubernetes.io/enforce=privileged
helm install npu charts/npu-platform --namespace npu-platform
helm test npu --namespace npu-platform
```

* **What a taint means.** A node that runs hot is tainted `thermal.npu-platform.io/hot:NoSchedule`:
  no new Pod that does not tolerate it starts there, with or without an NPU. Running Pods stay, but
  in an emergency (100 °C) those with an NPU are evicted (`guard.eviction`). The device plugin
  withdraws free NPU slots of a board on its own, a whole NPU only at critical. To watch first
  without any action, install with
  `--set guard.mode=observe --set plugin.heat.enabled=false`.
* **Credentials.** No Pod of a DaemonSet holds a Kubernetes token. Only the guard writes to the API.
* **Without a board.** `--values charts/npu-platform/values-demo.yaml` simulates one on every node;
  real boards are then ignored on all nodes.
* **Uninstall.** `helm uninstall` removes everything; a Job then clears our taints, labels,
  annotations and the condition from the nodes. A failed `helm test` leaves its Pod for reading
  (`kubectl delete pod -l app.kubernetes.io/component=test`); what passed is gone, so
  `helm test --logs` prints something only with Helm 4, or after a failure.

## Values
"""

_FOOT = """
This file is written by `python -m ci.chart_readme` from the comments in `values.yaml`.
"""


def described(text: str) -> Iterator[tuple[KeyPath, str, object]]:
    """Yield path, comment and default of every key with a comment or without keys below it."""
    lines = text.splitlines()
    root = yaml.compose(text)
    if isinstance(root, MappingNode):
        yield from _described(root, lines, ())


def _described(
    node: MappingNode, lines: list[str], path: KeyPath
) -> Iterator[tuple[KeyPath, str, object]]:
    for key, value in node.value:
        here = (*path, str(key.value))
        comment = _comment_above(lines, key)
        if isinstance(value, MappingNode) and value.value and not value.flow_style and not comment:
            yield from _described(value, lines, here)
        else:
            yield here, comment, _data(value)


def _comment_above(lines: list[str], key: ScalarNode) -> str:
    words: list[str] = []
    line = int(key.start_mark.line) - 1
    while line >= 0 and lines[line].strip().startswith("#"):
        words.insert(0, lines[line].strip().removeprefix("#").strip())
        line -= 1
    return " ".join(words)


def _data(node: Node) -> object:
    return yaml.safe_load(yaml.serialize(node))


def readme(text: str) -> str:
    """Return the README for values ``text``: one table per block of keys."""
    sections: dict[str, list[str]] = {}
    for path, comment, default in described(text):
        section = path[0] if len(path) > 1 else ""
        name = ".".join(path)
        sections.setdefault(section, []).append(
            f"| `{name}` | {_cell(comment)} | {_default(default)} |"
        )
    parts = [_HEAD]
    for section in sorted(sections, key=lambda name: (name != "", list(sections).index(name))):
        title = f"`{section}`" if section else "General"
        parts.append(f"### {title}\n\n| Key | Meaning | Default |\n| --- | --- | --- |")
        parts.append("\n".join(sections[section]) + "\n")
    return "\n".join(parts) + _FOOT


def _default(value: object) -> str:
    """Return a default as a cell; a long block would leave its neighbours no room to be read in."""
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and len(text) > _LONGEST:
        return f"{len(value)} entries, see `values.yaml`"
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Write the README, or with ``--check`` return 1 where it differs."""
    parser = argparse.ArgumentParser(prog="python -m ci.chart_readme", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    check = parser.parse_args(arguments).check
    fresh = readme((CHART / "values.yaml").read_text())
    if check:
        if not README.exists() or README.read_text() != fresh:
            print(f"{README} is not what values.yaml says", file=sys.stderr)
            return 1
        return 0
    README.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
