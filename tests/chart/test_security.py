"""What the installed Pods may do, and that heat cannot push the platform itself off a node."""

from collections.abc import Callable, Iterator

import pytest

from ci.chart import Json

Render = Callable[..., list[Json]]

NODE_DAEMONS = {"plugin", "exporter", "simulator"}


def pods(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """Yield component and Pod specification of everything that runs."""
    for item in objects:
        component = item["metadata"].get("labels", {}).get("app.kubernetes.io/component", "")
        if item["kind"] == "Pod":
            yield component, item["spec"]
        elif item["kind"] in {"DaemonSet", "Deployment", "Job"}:
            yield component, item["spec"]["template"]["spec"]


def test_no_token_on_nodes(render: Render, feature: str) -> None:
    """No Pod of a DaemonSet holds a Kubernetes credential."""
    for component, spec in pods(render(feature)):
        if component in NODE_DAEMONS:
            assert spec["automountServiceAccountToken"] is False
    for item in render(feature):
        if item["kind"] == "ServiceAccount":
            assert item["automountServiceAccountToken"] is False


def test_containers_are_confined(render: Render, feature: str) -> None:
    """Read-only root, no capability but the simulator's MKNOD, seccomp, never privileged.

    But for the plugin that was told to open devices, and the exporter that was told to run npu-smi.
    """
    privileged = set()
    for component, spec in pods(render(feature)):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert spec["enableServiceLinks"] is False
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            if security.get("privileged"):
                privileged.add(component)
                continue
            assert security["allowPrivilegeEscalation"] is False
            assert "privileged" not in security
            added = {"add": ["MKNOD"]} if component == "simulator" else {}
            assert security["capabilities"] == {"drop": ["ALL"]} | added
    asked = {"everything-values": {"plugin"}, "ascend-values": {"exporter"}}
    assert privileged == asked.get(feature, set())


def test_writers_are_restricted(render: Render, feature: str) -> None:
    """Pods with a token run as nobody and see no directory of the host."""
    for _, spec in pods(render(feature)):
        if spec["automountServiceAccountToken"] is not False:
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] == 65532
            assert not any("hostPath" in volume for volume in spec.get("volumes", []))


def test_host_paths_are_narrow(render: Render, feature: str) -> None:
    """Only the plugin's socket directory and the simulated board are writable.

    And, where they are asked for, the place of CDI files, and the clock with a note about it.
    """
    writable = set()
    for component, spec in pods(render(feature)):
        paths = {
            volume["name"]: volume["hostPath"]
            for volume in spec.get("volumes", [])
            if "hostPath" in volume
        }
        assert all("type" in path and path["path"] != "/" for path in paths.values())
        for container in spec["containers"]:
            writable |= {
                (component, paths[mount["name"]]["path"].rpartition("/")[2])
                for mount in container.get("volumeMounts", [])
                if mount["name"] in paths and not mount.get("readOnly")
            }
    clock = ("devfreq", "npu-platform")
    asked = {"everything-values": ("cdi", *clock), "fanless": clock}
    assert writable <= {("plugin", "device-plugins"), ("simulator", "board")} | {
        ("plugin", name) for name in asked.get(feature, ())
    }


def test_everything_tolerates_our_taints(render: Render) -> None:
    """A tainted node keeps its thermometer, and a cluster of tainted nodes can be cleaned."""
    for component, spec in pods(render("simulator-values")):
        expected = [] if spec.get("tolerations") is None else spec["tolerations"]
        if component == "test" and spec["containers"][0]["name"] == "workload":
            # The workload is placed like any other workload.
            assert expected == []
        else:
            assert expected == [{"operator": "Exists"}]


def test_resources_are_set(render: Render, feature: str) -> None:
    """Every container asks for little and, by default, has a memory limit."""
    for _, spec in pods(render(feature)):
        for container in spec["containers"]:
            assert container["resources"]["requests"]["cpu"]
            if feature != "everything-values":
                assert container["resources"]["limits"]["memory"]


def test_guard_rights_are_namespaced_where_possible(render: Render) -> None:
    """Nothing in the chart grants a wildcard, secrets, or writing anything but nodes and events."""
    for item in render("default"):
        for rule in item.get("rules", []) if item["kind"] in {"Role", "ClusterRole"} else []:
            assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
            assert "secrets" not in rule["resources"]
            if "pods" in rule["resources"]:
                assert not {"delete", "create", "patch", "update"} & set(rule["verbs"])
            if "nodes" in rule["resources"]:
                assert not {"delete", "create", "update"} & set(rule["verbs"])


@pytest.mark.parametrize("enabled", [True, False])
def test_rights_to_evict_come_and_go_with_eviction(render: Render, *, enabled: bool) -> None:
    """Without eviction the guard sees no Pods but those of its own namespace."""
    objects = render("default", guard={"eviction": {"enabled": enabled}})
    role = next(
        item
        for item in objects
        if item["kind"] == "ClusterRole" and item["metadata"]["name"].endswith("-guard")
    )
    resources = {name for rule in role["rules"] for name in rule["resources"]}
    evicting = {"pods", "pods/eviction", "events"}
    assert resources == {"nodes", "nodes/status"} | (evicting if enabled else set())
