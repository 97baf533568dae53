"""What `make demo-env` gives a visitor, and what it says where there is no demonstration."""

import os
import subprocess
from pathlib import Path

import pytest

from ci.cluster import Cluster
from ci.cluster.instance import Instance, Registry
from ci.command import CommandError
from ci.demo import autoscale, shell
from ci.demo.autoscale import DemoError
from ci.kube import Kube

WANTED = {"KUBECONFIG": "/a b/kubeconfig", "PATH": "/programs", "NO_PROXY": "198.18.0.0/15"}


@pytest.mark.parametrize("before", [{}, {"NO_PROXY": "localhost,.example"}])
def test_lines_and_environment_are_the_same(before: dict[str, str]) -> None:
    """A shell that evaluates the lines has what the tests have; lists keep what they had."""
    present = {"PATH": os.defpath, **before}
    script = 'eval "$1"\nprintf "%s\\n" "$KUBECONFIG" "$PATH" "$NO_PROXY"'
    told = subprocess.run(
        ["/bin/sh", "-c", script, "sh", shell.lines(WANTED)],
        env=present,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    joined = ",".join(["198.18.0.0/15", *before.values()])
    assert told == ["/a b/kubeconfig", f"/programs:{os.defpath}", joined]
    environment = shell.environment(WANTED, present)
    assert told == [environment[name] for name in ("KUBECONFIG", "PATH", "NO_PROXY")]


def test_without_a_demo_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that is not there, and one that is there and off."""

    def unreachable(_kube: Kube, _path: str) -> str:
        raise CommandError("connection refused")

    monkeypatch.setattr(Kube, "raw", unreachable)
    instances = Registry(root=tmp_path)
    cluster = Cluster("demo", instances=instances)
    with pytest.raises(
        DemoError, match="there is no cluster demo: `make demo`, without KUBECONFIG"
    ):
        autoscale.running(cluster)
    instances.write(Instance(name="demo", index=0, version="1.37.2", nodes=2))
    with pytest.raises(DemoError, match=r"does not answer: `make demo`, .* brings it up again"):
        autoscale.running(cluster)
