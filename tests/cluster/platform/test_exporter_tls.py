"""TLS on the exporter: probes, guard, ``helm test`` and ``kubectl npu`` go on as before."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ci.command import CommandError
from ci.demo.story import NAMESPACE, RELEASE
from ci.kube import Json, until
from tests.cluster.platform.installed import NpuCommand, Platform

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SERVER: Final = "exporter-papers"
CLIENT: Final = "exporter-visitor"
NAME: Final = "npu-platform-exporter"


def issue(folder: Path, name: str, *extra: str) -> None:
    """Make a certificate; an authority where nothing else is said."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"),
            *("-keyout", f"{name}.key", "-out", f"{name}.crt", *extra),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def secret(name: str, **files: Path) -> Json:
    """Return a Secret with these files, by their keys (a dot is written as an underscore)."""
    data = {
        key.replace("_", "."): base64.b64encode(file.read_bytes()).decode()
        for key, file in files.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": data,
    }


@pytest.fixture
def papers(platform: Platform, tmp_path: Path) -> Iterator[None]:
    """Both Secrets; afterwards the exporters speak plain HTTP again."""
    issue(tmp_path, "authority")
    signed = (
        *("-CA", "authority.crt", "-CAkey", "authority.key"),
        *("-addext", "basicConstraints=critical,CA:false"),
    )
    issue(tmp_path, "server", *signed, "-addext", f"subjectAltName=DNS:{NAME}")
    issue(tmp_path, "client", *signed)
    authority = tmp_path / "authority.crt"
    server, client = tmp_path / "server", tmp_path / "client"
    platform.kube.apply(
        secret(
            SERVER,
            tls_crt=server.with_suffix(".crt"),
            tls_key=server.with_suffix(".key"),
            ca_crt=authority,
        ),
        secret(CLIENT, tls_crt=client.with_suffix(".crt"), tls_key=client.with_suffix(".key")),
    )
    yield
    platform.change("--set=exporter.tls.secretName=", "--set=exporter.tls.clientSecretName=")
    platform.kube.delete("secret", SERVER, CLIENT, "-n", NAMESPACE)


def page(platform: Platform, node: str, path: str, scheme: str = "https:") -> str:
    """Return a page of an exporter through the API server, which has no certificate."""
    name = platform.component("exporter", node)["metadata"]["name"]
    return platform.kube.raw(f"/api/v1/namespaces/{NAMESPACE}/pods/{scheme}{name}:8080/proxy{path}")


def guard_sees(platform: Platform, node: str, celsius: float) -> None:
    """Wait until the guard that leads tells this temperature of ``node``."""
    platform.hold(node, celsius)

    def seen() -> float | None:
        for pod in platform.kube.items(
            "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=guard"
        ):
            try:
                answer = json.loads(platform.kube.pod_http(pod, "/api/v1/nodes"))
            except CommandError:
                # The one that does not lead answers so.
                continue
            for one in answer["nodes"]:
                if one["node"] == node and one["devices"]:
                    told: float | None = one["devices"][0]["celsius"]
                    return told
        return None

    until(
        seen,
        lambda value: value is not None and abs(value - celsius) < 1.5,
        seconds=90,
        what=f"{celsius} °C of {node}, as the guard sees it",
    )


def test_everybody_follows(
    boards: Platform, papers: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a certificate, then asking clients for one, too; readiness is the kubelet's word."""
    platform, node = boards, boards.boards[0]
    platform.change(f"--set=exporter.tls.secretName={SERVER}")
    assert "npu_info{" in page(platform, node, "/metrics")
    with pytest.raises(CommandError):
        page(platform, node, "/metrics", scheme="")
    guard_sees(platform, node, 55.0)
    platform.kube.helm("test", RELEASE, f"--namespace={NAMESPACE}", seconds=300)
    assert "npu0" in NpuCommand(platform, capsys)("top", node, "--interval=0")

    platform.change(f"--set=exporter.tls.clientSecretName={CLIENT}")
    assert page(platform, node, "/healthz").strip() == "ok"
    with pytest.raises(CommandError, match=r"certificate|orbidden"):
        page(platform, node, "/metrics")
    guard_sees(platform, node, 50.0)
    platform.kube.helm("test", RELEASE, f"--namespace={NAMESPACE}", seconds=300)
