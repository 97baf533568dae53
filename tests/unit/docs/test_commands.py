"""Each command in the documentation is run by a test, or the table says why not."""

import re
from typing import Final

from tests.unit.docs.pages import ROOT, commands, pages

_HELM: Final = "tests/cluster/platform"
_ASKS: Final = "a question to the reader's own cluster, changes nothing"
_READER: Final = "names things of the reader's own: a node, a Pod, a file"
_HARDWARE: Final = "for a board or a machine that the tests do not have"

#: Beginning of a command (a regular expression), and the test, or the step of the continuous
#: integration, that runs it; below, why none does. The first row that matches counts.
PROVED: Final = (
    (r"make demo-autoscale|eval .*demo-env", f"{_HELM}/test_autoscaling.py"),
    (r"make (demo|test)\b", "ci/demo/story.py"),
    (r"make images-arm64", "ci/steps.sh"),
    (r"make push", "tests/component/images/test_registry.py"),
    (r"make release", "tests/chart/test_release.py"),
    (r"make kubectl-npu", "tests/component/kubectl_npu/test_package.py"),
    (r"helm test ", f"{_HELM}/test_uninstall.py"),
    (r"helm install ", f"{_HELM}/installed.py"),
    (r"helm uninstall ", f"{_HELM}/test_uninstall.py"),
    (r"(helm|kubectl) .*(examples/walkthrough/|team-vision\b)", f"{_HELM}/test_autoscaling.py"),
    (r"helm upgrade .*-f quotas.yaml", f"{_HELM}/test_teams.py"),
    (r"helm upgrade .*exporter.ascendTelemetry", f"{_HELM}/test_vendors.py"),
    (r"helm upgrade .*exporter.tls", f"{_HELM}/test_exporter_tls.py"),
    (r"helm upgrade .*monitoring", "tests/chart/test_monitoring_objects.py"),
    (r"helm upgrade .*plugin(\.profiles\.\w+)?\.mode=dra", f"{_HELM}/test_modes.py"),
    (r"helm upgrade .*values-fanless", "tests/chart/test_rendering.py"),
    (r"helm upgrade ", f"{_HELM}/installed.py"),
    (r"helm rollback ", f"{_HELM}/test_upgrade.py"),
    (r"helm template ", "tests/chart/test_monitoring_examples.py"),
    (r"kubectl taint nodes --all", "tests/component/thermal/test_by_hand.py"),
    (r"kubectl npu (top|who|why)", f"{_HELM}/test_kubectl_npu.py"),
    (r"kubectl (create|label) namespace npu-platform", "ci/demo/story.py"),
    (r".*-m plugin doctor", f"{_HELM}/test_doctor.py"),
    (r".*-m npu capture", "tests/unit/npu/test_command.py"),
    (r".*-m npu (scan|simulate)", "tests/unit/npu/test_command.py"),
    (r".*-m ci.dashboards", "ci/generated.py"),
    (
        r".*-m ci.cluster|PY=|export NPU_TEST_CLUSTER|\$PY -m pytest",
        "tests/cluster/test_cluster.py",
    ),
    (r".*-m thermal cleanup", f"{_HELM}/test_uninstall.py"),
    (r".*-m thermal replay", "tests/unit/thermal/replay/test_replay.py"),
    (r"echo '{\"celsius\"|rm /var/lib/npu-platform/board", f"{_HELM}/installed.py"),
)
UNPROVED: Final = (
    (r"kubectl apply -f docs/examples/yolov8.yaml", "needs a model of the reader's own"),
    (r"kubectl (-n \S+ )?(taint|label|cordon|drain|uncordon|delete)", _READER),
    (r"kubectl .* rollout restart", "Kubernetes alone; an update of ours is test_upgrade.py"),
    (
        r"(\w+=\$\()?kubectl .*\b(get|version|describe|logs|top|events|auth|port-forward|exec)\b",
        _ASKS,
    ),
    (
        r"(for|ssh|scp|git clone|sudo|cp|install|podman|ctr|export|journalctl|systemctl)\b",
        _HARDWARE,
    ),
    (r"(curl|date)\b", _HARDWARE),
)


def row(command: str) -> tuple[str, str] | None:
    """Return the row of a command."""
    rows = (*PROVED, *UNPROVED)
    return next((entry for entry in rows if re.match(entry[0], command)), None)


def test_every_command_has_a_row() -> None:
    """A command nobody ever ran is a promise."""
    unknown = {
        f"{page.relative_to(ROOT)}: {command}"
        for page in pages()
        for command in commands(page)
        if row(command) is None
    }
    assert not unknown


def test_rows_are_used_and_their_tests_exist() -> None:
    """The table ends with the command that it speaks of."""
    used = {entry for page in pages() for command in commands(page) if (entry := row(command))}
    assert {pattern for pattern, _ in (*PROVED, *UNPROVED)} == {pattern for pattern, _ in used}
    missing = [proof for _, proof in PROVED if not (ROOT / proof).is_file()]
    assert not missing


def test_targets_and_modules_exist() -> None:
    """What a sentence names in passing was not renamed since: `make TARGET`, `python -m MODULE`."""
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.MULTILINE))
    wrong = set()
    for page in pages():
        text = page.read_text()
        for code in re.findall(r"`([^`\n]+)`", text):
            found = re.match(r"make (?:-s )?([a-z0-9-]+)", code)
            if found and found[1] not in targets:
                wrong.add((page.name, code))
        for name in re.findall(r"python3? -m ([a-z_.]*[a-z_])", text):
            place = ROOT / name.replace(".", "/")
            if not (place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()):
                wrong.add((page.name, name))
    assert not wrong


def test_objects_are_called_as_the_documented_release_makes_them() -> None:
    """All pages install the release `npu`; another name of it would change all names of objects."""
    component = r"\b[a-z0-9-]*platform-(?:plugin|exporter|guard|simulator)\b"
    wrong = {
        f"{page.name}: {command}"
        for page in pages()
        for command in commands(page)
        for name in re.findall(component, command)
        if not name.startswith("npu-npu-platform-")
    }
    assert not wrong
    releases = {
        found[1]
        for page in pages()
        for command in commands(page)
        if (
            found := re.match(
                r"helm (?:install|upgrade(?: --install)?|test|uninstall) (\S+)", command
            )
        )
    }
    assert releases == {"npu"}
