"""The doctor where it is used: in a Job that asks for an NPU, on the node, with seeded faults."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from ci.demo.story import NAMESPACE, ROOT
from ci.kube import Json, until
from tests.cluster.platform.installed import Platform, doctor_on, npu_pod

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

EXAMPLE: Final = ROOT / "docs/examples/doctor.yaml"


@pytest.fixture
def jobs(platform: Platform) -> Iterator[dict[str, Json]]:
    """The documented Jobs, by name; removed afterwards."""
    found = {job["metadata"]["name"]: job for job in yaml.safe_load_all(EXAMPLE.read_text())}
    yield found
    for name in found:
        platform.kube.delete("job", name, "-n", NAMESPACE)


def _run(platform: Platform, job: Json) -> tuple[bool, str]:
    """Run a Job to its end; return whether it succeeded and what it printed."""
    name = job["metadata"]["name"]
    platform.kube.kubectl("apply", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(job))
    status = until(
        lambda: platform.kube.get("job", name, "-n", NAMESPACE)["status"],
        lambda seen: bool(seen.get("succeeded") or seen.get("failed")),
        seconds=90,
        what=f"end of {name}",
    )
    text = platform.kube.kubectl("logs", f"job/{name}", "-n", NAMESPACE)
    return bool(status.get("succeeded")), text


def _lines(text: str, check: str) -> list[str]:
    """Return the levels of a check's lines."""
    return [
        line.split()[0]
        for line in text.splitlines()
        if line[:4].strip() in ("ok", "warn", "fail") and line[6:].startswith(check)
    ]


def test_job_that_asks_for_an_npu_opens_it(platform: Platform, jobs: dict[str, Json]) -> None:
    """The documented Job succeeds: granted, and both nodes open."""
    content, text = _run(platform, jobs["npu-doctor"])

    assert content, text
    assert _lines(text, "grant") == ["ok"]
    assert _lines(text, "device node")[:2] == ["ok", "ok"]


def test_job_that_does_not_ask_is_told_so(platform: Platform, jobs: dict[str, Json]) -> None:
    """And what to write into the Pod."""
    job = jobs["npu-doctor"]
    del job["spec"]["template"]["spec"]["containers"][0]["resources"]

    content, text = _run(platform, job)

    assert not content
    assert _lines(text, "grant") == ["fail"]
    assert "resources.limits" in text


def test_job_on_the_node_names_who_has_it_open(platform: Platform, jobs: dict[str, Json]) -> None:
    """With hostPID: the holder by the kubelet's word, and no stranger."""
    node = platform.boards[0]
    job = jobs["npu-doctor-node"]
    job["spec"]["suspend"] = False
    spec = job["spec"]["template"]["spec"]
    spec["nodeName"] = node
    board = platform.cluster.node_board(node)
    spec["volumes"][0]["hostPath"]["path"] = "/var/lib/npu-platform/board"
    with platform.pod(npu_pod("npu-patient", node)):
        content, text = _run(platform, job)

    assert board.is_dir()
    assert content, text
    assert "default/npu-patient/sample" in text
    assert _lines(text, "offer") == ["warn"], "all in use is said"
    assert _lines(text, "open by") == ["ok"]


def test_faults_of_a_node_are_all_named(boards: Platform) -> None:
    """One look tells a wedged NPU, a made-up node and a library that went away."""
    node = boards.boards[1]
    content, healthy = doctor_on(boards, node)
    assert content, healthy
    assert _lines(healthy, "plugin") == ["ok"]
    assert _lines(healthy, "offer") == ["ok"]

    root = boards.cluster.node_board(node)
    libraries = sorted(root.glob("usr/lib/**/lib*rt.so"))
    kept = [(path, path.read_bytes()) for path in libraries]
    boards.hold(node, 45.0, (1.0, 0.0, 0.0))
    made_up = root / "dev/rknpu"
    made_up.symlink_to("dri/card1")
    _remove(libraries)
    try:
        content, text = until(
            lambda: doctor_on(boards, node),
            lambda seen: "fail" in _lines(seen[1], "load"),
            seconds=40,
            what="full load without a holder",
        )
    finally:
        made_up.unlink()
        for path, data in kept:
            path.write_bytes(data)
    assert not content
    assert "fail" in _lines(text, "device node")
    assert "warn" in _lines(text, "library")
    assert "reboot" in text


def _remove(paths: list[Path]) -> None:
    for path in paths:
        path.unlink()
