"""Hooks: what runs after an uninstall and during a test, and that nothing of it stays."""

from collections.abc import Callable

from ci.chart import Json

Render = Callable[..., list[Json]]


def hooks(objects: list[Json], event: str) -> list[Json]:
    """Return the hooks of an event, in the order Helm runs them."""
    found = [
        o
        for o in objects
        if event in o["metadata"].get("annotations", {}).get("helm.sh/hook", "").split(",")
    ]
    return sorted(found, key=lambda o: int(o["metadata"]["annotations"]["helm.sh/hook-weight"]))


def test_hooks_clean_after_themselves(render: Render, feature: str) -> None:
    """Every hook is deleted before it is created again and after it succeeded."""
    for item in render(feature):
        annotations = item["metadata"].get("annotations", {})
        if "helm.sh/hook" in annotations:
            policy = annotations["helm.sh/hook-delete-policy"]
            assert policy == "before-hook-creation,hook-succeeded"


def test_cleanup_brings_all_it_needs(render: Render) -> None:
    """The clean-up Job comes last and uses nothing that the release owned."""
    found = hooks(render(), "post-delete")
    kinds = [o["kind"] for o in found]
    assert kinds[0] == "ServiceAccount"
    assert kinds[-1] == "Job"
    assert set(kinds[1:-1]) == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
    job = found[-1]["spec"]
    spec = job["template"]["spec"]
    assert spec["serviceAccountName"] == found[0]["metadata"]["name"]
    assert "volumes" not in spec
    assert "priorityClassName" not in spec
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert job["activeDeadlineSeconds"] > 0
    assert job["backoffLimit"] > 0
    assert job["ttlSecondsAfterFinished"] >= 300


def test_cleanup_waits_for_the_guard(render: Render) -> None:
    """The Job waits for the guard's Pods, and its own Pod is none of those."""
    objects = render()
    job = hooks(objects, "post-delete")[-1]["spec"]["template"]
    argument = next(
        a for a in job["spec"]["containers"][0]["args"] if a.startswith("--wait-for-pods=")
    )
    selector = dict(pair.split("=") for pair in argument.partition("=")[2].split(","))
    guard = next(o for o in objects if o["kind"] == "Deployment")
    assert selector.items() <= guard["spec"]["template"]["metadata"]["labels"].items()
    assert not selector.items() <= job["metadata"]["labels"].items()


def test_cleanup_after_the_guard_was_turned_off(render: Render) -> None:
    """Without a guard an upgrade cleans too; with one it must not."""
    assert hooks(render(), "post-upgrade") == []
    assert hooks(render("guard-off-values"), "post-upgrade")


def test_cleanup_can_be_left_out(render: Render) -> None:
    """Nothing of the clean-up is rendered where it is off."""
    assert hooks(render("exporter-only-values"), "post-delete") == []


def test_tests_are_pods(render: Render) -> None:
    """Every test is a Pod with a deadline, so that Helm can print its log."""
    found = hooks(render(), "test")
    assert [o["kind"] for o in found] == ["Pod", "Pod"]
    for item in found:
        assert item["spec"]["activeDeadlineSeconds"] > 0
        assert item["spec"]["restartPolicy"] == "Never"


def test_workload_asks_for_the_configured_resource(render: Render) -> None:
    """The test workload requests the NPU under its configured name."""
    workload = hooks(render("everything-values"), "test")[-1]
    assert workload["spec"]["containers"][0]["resources"]["limits"]["example.com/npu.shared"] == 1
