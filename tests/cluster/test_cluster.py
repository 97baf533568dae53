"""The embedded cluster itself: what happens to it and what it leaves behind."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ci.cache import cache_dir
from ci.cluster import Cluster, ClusterError, cgroups, pause, processes
from ci.cluster.daemons import DaemonError
from ci.cluster.instance import registry
from ci.kube import Json, Kube, until

# Others work on the machine as well: only mounts where a cluster could have left one.
OURS = re.compile(r"^/(run/netns|opt/npu|etc/(cdi|cni)|var/(lib|log)/)")


def pod(name: str, node: str) -> dict[str, object]:
    """Return a Pod of the sandbox image, which only waits."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": pause.IMAGE, "imagePullPolicy": "Never"}],
        },
    }


def is_ready(item: Json) -> bool:
    """Tell whether a Pod or a Node is Ready."""
    conditions = item["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture
def pods(cluster: Cluster, kube: Kube) -> Iterator[list[Json]]:
    """Give one Ready Pod per node, removed afterwards."""
    names = [f"pod-{node}" for node in cluster.nodes]
    for name, node in zip(names, cluster.nodes, strict=True):
        kube.apply(pod(name, node))
    yield [
        until(partial(kube.get, "pod", name), is_ready, seconds=60, what=f"{name} Ready")
        for name in names
    ]
    kube.delete("pod", "--force", *names)


def inhabited(cluster: Cluster) -> set[int]:
    """Return the network namespaces that processes of a cluster live in, its Pods' included."""
    groups = [root / f"npu-{cluster.name}" for root in cgroups.hierarchies().roots]
    pids = {
        int(pid)
        for group in groups
        for path in group.rglob("cgroup.procs")
        for pid in path.read_text().split()
    }
    mine = str(cluster.folder)
    return {
        process.net_namespace
        for process in processes.running()
        if process.pid in pids or any(mine in word for word in process.argv)
    } - {Path("/proc/self/ns/net").stat().st_ino}


def inhabitants(namespaces: set[int]) -> list[processes.Process]:
    """Return the processes that live in any of the namespaces."""
    return [one for one in processes.running() if one.net_namespace in namespaces]


def survivors(before: list[processes.Process]) -> list[processes.Process]:
    """Return those that still run. Not by namespace: the kernel gives its number to the next."""
    return [one for one in processes.running() if one in before]


@pytest.fixture
def other(cluster: Cluster) -> Cluster:
    """Give a second cluster, not running yet."""
    return Cluster(f"{cluster.name}-2")


def strangers(mine: Cluster, other: Cluster) -> set[str]:
    """Return the namespaces and interfaces of the clusters of other tests and other people."""
    instances = registry()
    names = set(instances.names()) - {mine.name, other.name}
    plans = [found.plan for name in names if (found := instances.read(name))]
    return {word for plan in plans for word in (plan.namespace, plan.host_interface)}


def snapshot(mine: Cluster, other: Cluster) -> dict[str, set[str]]:
    """Return what a cluster could leave on a machine, but for what is clearly a stranger's.

    Strangers come and go meanwhile. Each is registered before it makes anything and as long as
    anything of it is left, so those registered before and after looking are all there are.
    """
    known = strangers(mine, other)
    seen = _look()
    known |= strangers(mine, other)
    foreign = re.compile(rf"(?<![\w.-])({'|'.join(known) or '$.'})(-node\d+)?(?![\w.-])")
    return {
        what: {line for line in lines if not foreign.search(line)} for what, lines in seen.items()
    }


def _look() -> dict[str, set[str]]:
    def lines(*argv: str) -> set[str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return {line.strip() for line in done.stdout.splitlines()}

    tree = cgroups.hierarchies()
    sysctls = (
        *("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"),
        *("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"),
    )
    folders = ("/etc/cni", "/etc/cdi", "/opt/npu", "/run/netns", "/var/lib/kubelet", "/var/lib/cni")
    return {
        "mounts": {
            mount
            for line in Path("/proc/self/mountinfo").read_text().splitlines()
            if OURS.match(mount := line.split()[4])
        },
        "links": {line.split(":")[1] for line in lines("ip", "-o", "link", "show")},
        "routes": lines("ip", "-4", "route", "show", "table", "all"),
        "firewall": {line for line in lines("iptables-save") if not line.startswith("#")},
        "cgroups": {
            str(path) for root in (*tree.roots, *tree.mirrors) for path in root.glob("npu-*")
        },
        "sysctls": {
            f"{name} = {path.read_text().strip()}"
            for name in sysctls
            if (path := Path("/proc/sys") / name).exists()
        },
        "folders": {name for name in folders if Path(name).exists()},
    }


def test_down_leaves_nothing_and_instances_coexist(
    cluster: Cluster, other: Cluster, kube: Kube
) -> None:
    """A second cluster with a Pod comes, works beside the first and goes without a trace."""
    before = snapshot(cluster, other)
    try:
        other.up(nodes=1)
        beside = Kube(kubeconfig=other.kubeconfig)
        beside.apply(pod("a", "node1"))
        until(lambda: beside.get("pod", "a"), is_ready, seconds=60, what="Pod a Ready")
        assert other.nodes == ["node1"]
        assert all(is_ready(node) for node in kube.items("nodes"))
        uid = kube.get("namespace", "kube-system")["metadata"]["uid"]
        assert beside.get("namespace", "kube-system")["metadata"]["uid"] != uid
        assert snapshot(cluster, other) != before
        spaces = inhabited(other)
        # Control plane, node and Pod.
        assert len(spaces) == 3
        lived = inhabitants(spaces)
    finally:
        other.down()
    assert snapshot(cluster, other) == before
    assert survivors(lived) == []
    assert other.name not in registry().names()


def test_down_cleans_up_after_a_crash(cluster: Cluster, other: Cluster) -> None:
    """A cluster whose programs were killed and whose record is damaged still goes entirely."""
    before = snapshot(cluster, other)
    try:
        other.up(nodes=1)
        mine = str(other.folder)
        half = [p for p in processes.running() if any(mine in word for word in p.argv)]
        assert len(half) > 5
        lived = inhabitants(inhabited(other))
        processes.send(half[::2], signal.SIGKILL)
        (other.folder / "instance.json").write_text('{"name": "test-o')
        with pytest.raises(ClusterError, match="damaged"):
            other.up()
    finally:
        other.down()
    assert snapshot(cluster, other) == before
    assert survivors(lived) == []
    assert other.name not in registry().names()


def test_up_repairs_what_was_killed(cluster: Cluster, kube: Kube) -> None:
    """Bringing up a cluster whose programs died brings them back."""
    mine = str(cluster.folder)
    # Waits for their end: a large process is still there for a while after its SIGKILL.
    processes.end(
        lambda process: any(mine in word for word in process.argv),
        patience_seconds=0,
        what=f"cluster {cluster.name}",
    )
    cluster.up()
    assert all(is_ready(node) for node in kube.items("nodes"))


def test_pods_run_on_every_node(cluster: Cluster, pods: list[Json]) -> None:
    """The sandbox image serves as a workload on each node."""
    assert [item["spec"]["nodeName"] for item in pods] == cluster.nodes


def test_pods_reach_the_api_server_and_each_other(
    cluster: Cluster, kube: Kube, pods: list[Json]
) -> None:
    """From a Pod's network the Kubernetes Service answers and other nodes' Pods are routed to."""
    service = kube.get("service", "kubernetes")["spec"]["clusterIP"]
    space = cluster.exec("node1", ["sh", "-c", "ls /run/netns"]).stdout.split()[0]

    def connect(address: str, port: int) -> subprocess.CompletedProcess[str]:
        script = f"exec 3<>/dev/tcp/{address}/{port}"
        entering = ["nsenter", f"--net=/run/netns/{space}", "timeout", "10"]
        return cluster.exec("node1", [*entering, "bash", "-c", script])

    assert connect(service, 443).returncode == 0
    far = next(item for item in pods if item["spec"]["nodeName"] == "node2")
    # Nothing listens there: the refusal comes from the Pod itself.
    assert "refused" in connect(far["status"]["podIP"], 9).stderr


def test_exec_enters_the_node(cluster: Cluster) -> None:
    """A command sees the node's name, its own board, its own processes; its status counts."""
    cluster.node_board("node1").joinpath("mark").write_text("one")
    seen = cluster.exec("node1", ["cat", "/var/lib/npu-platform/board/mark"])
    assert (seen.returncode, seen.stdout) == (0, "one")
    assert cluster.exec("node2", ["cat", "/var/lib/npu-platform/board/mark"]).returncode == 1
    assert cluster.exec("node2", ["hostname"]).stdout == "node2\n"
    assert cluster.exec("node2", ["cat", "/proc/1/comm"]).stdout == "pause\n"
    cluster.node_board("node1").joinpath("mark").unlink()


@pytest.mark.parametrize("what", ["kubelet", "containerd", "kube-proxy"])
def test_restart_on_a_node_keeps_pods(
    cluster: Cluster, kube: Kube, pods: list[Json], what: str
) -> None:
    """A daemon of a node restarts as a new process while the containers go on."""
    before = containers(kube)
    old = program_ids(cluster, what)
    cluster.restart(what, "node1")
    assert len(program_ids(cluster, what) - old) == 1
    until(lambda: kube.node("node1"), is_ready, seconds=30, what="node1 Ready")
    assert containers(kube) == before


@pytest.mark.parametrize("what", ["apiserver", "controller-manager", "scheduler", "etcd"])
def test_restart_of_the_control_plane_keeps_objects(
    cluster: Cluster, kube: Kube, pods: list[Json], what: str
) -> None:
    """A program of the control plane restarts and the cluster answers as before."""
    before = containers(kube)
    cluster.restart(what)
    assert containers(kube) == before


def containers(kube: Kube) -> dict[str, str]:
    """Return the container of each Pod in the default namespace."""
    return {
        item["metadata"]["name"]: item["status"]["containerStatuses"][0]["containerID"]
        for item in kube.items("pods")
    }


def program_ids(cluster: Cluster, program: str) -> set[int]:
    """Return the process numbers of a program in this cluster."""
    mine = str(cluster.folder)
    return {
        process.pid
        for process in processes.running()
        if process.program == program and any(mine in word for word in process.argv)
    }


def test_power_cut_and_boot(cluster: Cluster, kube: Kube, pods: list[Json]) -> None:
    """A node without power loses processes and /run, keeps its disk, and is back after a boot."""
    before = containers(kube)
    disk = str(cluster.folder / "node2")
    cluster.exec("node2", ["sh", "-c", "echo x >/run/volatile; echo x >/var/lib/kubelet/kept"])
    old = kube.node("node2")["status"]["nodeInfo"]
    cluster.stop_node("node2")
    with pytest.raises(DaemonError, match="node start"):
        cluster.exec("node2", ["true"])
    assert not [word for p in processes.running() for word in p.argv if word.startswith(disk)]
    until(
        lambda: kube.node("node2"), lambda seen: not is_ready(seen), seconds=60, what="node2 lost"
    )
    cluster.start_node("node2")
    until(lambda: kube.node("node2"), is_ready, seconds=60, what="node2 Ready again")
    now = kube.node("node2")["status"]["nodeInfo"]
    assert (now["machineID"], now["bootID"] == old["bootID"]) == (old["machineID"], False)
    assert cluster.exec("node2", ["cat", "/run/volatile"]).returncode == 1
    assert cluster.exec("node2", ["cat", "/var/lib/kubelet/kept"]).stdout == "x\n"
    after = until(
        lambda: containers(kube),
        lambda seen: seen["pod-node2"] != before["pod-node2"],
        seconds=60,
        what="a new container for the Pod of node2",
    )
    assert after["pod-node1"] == before["pod-node1"]


def test_images_are_loaded_on_all_nodes(cluster: Cluster, tmp_path: Path) -> None:
    """An archive given to the cluster is in the image store of each node."""
    name = "localhost/npu-platform/loaded:1"
    archive = tmp_path / "image.tar"
    archive.write_bytes(pause.pack(pause.program(cache_dir()).read_bytes(), name=name))
    assert cluster.load_images([archive]) == [name]
    for node in cluster.nodes:
        listed = cluster.exec(node, ["ctr", "-n", "k8s.io", "images", "ls", "-q"]).stdout
        assert name in listed.splitlines()


def test_up_refuses_another_version(cluster: Cluster) -> None:
    """A running cluster is not replaced by one of another version in passing."""
    with pytest.raises(ClusterError, match="take it down first"):
        cluster.up(version="1.30.0")


def test_command_line_shows_the_cluster(cluster: Cluster) -> None:
    """Status tells of every part and says by its exit status that all is well."""
    argv = [sys.executable, "-m", "ci.cluster", "status", "--name", cluster.name]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("running") == 4
    assert done.stdout.count("Ready") == len(cluster.nodes)


def test_a_go_of_the_machine_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stub first on the PATH the pinned Go still builds, and the stub is not even asked."""
    pause.program(cache_dir())
    stub = tmp_path / "bin" / "go"
    stub.parent.mkdir()
    stub.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexit 1\n")
    stub.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "go").symlink_to(cache_dir() / "go")
    monkeypatch.setenv("PATH", f"{stub.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GOROOT", str(tmp_path))
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    built = pause.program(cache)
    assert built.is_relative_to(cache)
    assert built.read_bytes() == pause.program(cache_dir()).read_bytes()
    assert not (tmp_path / "asked").exists()
