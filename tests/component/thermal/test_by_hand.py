"""What the documentation says to type where the clean-up did not run, by the real kubectl."""

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ci import chart, tools
from tests.component.fake_apiserver import FakeApiServer, Json, Seen
from tests.unit.docs.pages import ROOT, commands

HOT = {"key": "thermal.npu-platform.io/hot", "value": "80", "effect": "NoSchedule"}
CRITICAL = {"key": "thermal.npu-platform.io/critical", "effect": "NoExecute"}
FOREIGN = {"key": "example.com/spare", "effect": "NoSchedule"}
OPENS = "kubectl taint nodes --all"


class _Server(FakeApiServer):
    """One that kubectl can use: it wants a kind on everything and sends no token in the open."""

    def __init__(self) -> None:
        super().__init__()
        nodes = {"name": "nodes", "kind": "Node", "namespaced": False, "verbs": ["get", "list"]}
        self.put("/api", {"kind": "APIVersions", "versions": ["v1"]})
        self.put("/apis", {"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
        resources = {"kind": "APIResourceList", "groupVersion": "v1", "resources": [nodes]}
        self.put("/api/v1", resources)

    def _admit(self, seen: Seen, authorization: str) -> None:
        pass

    def _get(self, seen: Seen) -> Json:
        found = super()._get(seen)
        if seen.path == "/api/v1/nodes":
            found |= {"kind": "NodeList", "apiVersion": "v1"}
            found["items"] = [_node(item) for item in found["items"]]
        return _node(found) if seen.path.startswith("/api/v1/nodes/") else found

    def _patch(self, seen: Seen) -> Json:
        return _node(super()._patch(seen))


def _node(item: Json) -> Json:
    return item | {"kind": "Node", "apiVersion": "v1"}


@pytest.fixture
def server() -> Iterator[_Server]:
    """Nodes with all, one, and none of the taints."""
    made = _Server()
    made.add_node("hot", taints=[HOT])
    made.add_node("cool")
    made.add_node("both", taints=[HOT, CRITICAL, FOREIGN])
    yield made
    made.close()


def documented(where: str) -> list[str]:
    """Return the lines that open nodes, of a page or of the notes after an installation."""
    lines = commands(ROOT / where) if where.endswith(".md") else chart.notes().splitlines()
    return [line.strip() for line in lines if line.strip().startswith(OPENS)]


@pytest.mark.parametrize("where", ["docs/upgrade.md", "docs/thermal.md", "notes"])
def test_documented_lines_open_every_node(server: _Server, where: str, tmp_path: Path) -> None:
    """Also those that lack one of the taints, of which kubectl complains; others' taints stay."""
    config = tmp_path / "kubeconfig"
    config.write_text(server.kubeconfig())
    lines = documented(where)
    assert lines
    for line in lines:
        _, *arguments = shlex.split(line)
        options = (f"--kubeconfig={config}", f"--cache-dir={tmp_path}")
        subprocess.run(
            [tools.kubectl(), *options, *arguments], capture_output=True, timeout=60, check=False
        )
    left = {
        name: [taint["key"] for taint in server.node(name)["spec"].get("taints") or []]
        for name in ("hot", "cool", "both")
    }
    assert left == {"hot": [], "cool": [], "both": [FOREIGN["key"]]}
