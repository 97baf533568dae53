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
    (r"make (demo|test)\b", "ci/demo/story.py"),
    (r"make images-arm64", "ci/steps.sh"),
    (r"make push", "tests/component/images/test_registry.py"),
    (r"make release", "tests/chart/test_release.py"),
    (r"make kubectl-npu", "tests/component/kubectl_npu/test_package.py"),
    (r"helm test ", f"{_HELM}/test_uninstall.py"),
    (r"helm install ", f"{_HELM}/installed.py"),
    (r"helm uninstall ", f"{_HELM}/test_uninstall.py"),
    (r"helm upgrade .*-f quotas.yaml", f"{_HELM}/test_teams.py"),
    (r"helm upgrade .*exporter.ascendTelemetry", f"{_HELM}/test_vendors.py"),
    (r"helm upgrade .*monitoring", "tests/chart/test_monitoring_objects.py"),
    (r"helm upgrade ", f"{_HELM}/installed.py"),
    (r"helm template ", "tests/chart/test_monitoring_examples.py"),
    (r"kubectl npu why", f"{_HELM}/test_kubectl_npu.py"),
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
    (r"echo '{\"celsius\"|rm /var/lib/npu-platform/board", f"{_HELM}/installed.py"),
)
UNPROVED: Final = (
    (r"helm rollback ", "the same as an upgrade to Helm and to the cluster"),
    (r"kubectl apply -f docs/examples/yolov8.yaml", "needs a model of the reader's own"),
    (r"kubectl taint nodes --all", "what is left without hooks; removes by name"),
    (r"kubectl (-n \S+ )?(taint|label|cordon|drain|uncordon|delete)", _READER),
    (
        r"(\w+=\$\()?kubectl .*\b(get|version|describe|logs|top|events|auth|port-forward|exec)\b",
        _ASKS,
    ),
    (
        r"(for|ssh|scp|git clone|sudo|cp|install|podman|ctr|export|journalctl|systemctl)\b",
        _HARDWARE,
    ),
    (
        r"(cat|ls|dmesg|curl|grep|echo|python3?|uname|date|openssl|npu-smi|promtool|openssl)\b",
        _HARDWARE,
    ),
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
