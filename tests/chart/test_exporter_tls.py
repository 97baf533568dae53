"""TLS on the exporter: whoever talks to it follows, and whoever would not is refused."""

import pytest

from ci import chart
from ci.chart import Json
from ci.command import CommandError

SERVED = "exporter.tls.secretName=papers"
CLIENT = "exporter.tls.clientSecretName=visitor"
MONITORED = ("monitoring.enabled=true", "monitoring.skipApiCheck=true")


def rendered(*settings: str) -> dict[tuple[str, str], Json]:
    """Return the objects by kind and the end of their name."""
    found = chart.objects(chart.render(settings=[*settings, *MONITORED]))
    return {
        (item["kind"], item["metadata"]["name"].removeprefix("npu-platform-")): item
        for item in found
    }


def spec_of(item: Json) -> Json:
    """Return the specification of the Pods of an object."""
    spec: Json = item["spec"].get("template", {}).get("spec", item["spec"])
    return spec


def secrets(spec: Json) -> dict[str, list[str]]:
    """Return the Secrets that a Pod mounts, with the keys it sees; none means all."""
    found: dict[str, list[str]] = {}
    for volume in spec["volumes"]:
        sources = volume.get("projected", {}).get("sources", [volume])
        for secret in (one["secret"] for one in sources if "secret" in one):
            name = secret.get("secretName") or secret["name"]
            found[name] = [item["key"] for item in secret.get("items", [])]
    return found


@pytest.mark.parametrize("name", ["exporter", "guard", "plugin"])
def test_probes_speak_what_is_served(name: str) -> None:
    """HTTPS where the exporter has a certificate, HTTP everywhere else."""
    for settings in ((), (SERVED,)):
        objects = rendered(*settings)
        kind = "Deployment" if name == "guard" else "DaemonSet"
        (container,) = spec_of(objects[kind, name])["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            https = bool(settings) and name == "exporter"
            assert (container[probe]["httpGet"].get("scheme") == "HTTPS") == https


def test_prometheus_and_guard_follow() -> None:
    """They verify the name, by the authority beside the certificate, and never see its key."""
    objects = rendered(SERVED)
    exporter = spec_of(objects["DaemonSet", "exporter"])
    arguments = exporter["containers"][0]["args"]
    assert "--tls-cert-file=/etc/npu-platform-tls/tls.crt" in arguments
    assert "--tls-key-file=/etc/npu-platform-tls/tls.key" in arguments
    assert not any("client-ca" in argument for argument in arguments)
    (endpoint,) = objects["PodMonitor", "exporter"]["spec"]["podMetricsEndpoints"]
    assert endpoint["scheme"] == "https"
    assert endpoint["tlsConfig"] == {
        "serverName": "npu-platform-exporter",
        "ca": {"secret": {"name": "papers", "key": "ca.crt"}},
    }
    for name in ("guard", "plugin"):
        (endpoint,) = objects["PodMonitor", name]["spec"]["podMetricsEndpoints"]
        assert "scheme" not in endpoint
    for reader in (objects["Deployment", "guard"], objects["Pod", "test-installation"]):
        assert secrets(spec_of(reader)) == {"papers": ["ca.crt"]}
    configuration = objects["ConfigMap", "guard"]["data"]["guard.yaml"]
    assert "serverName: npu-platform-exporter" in configuration
    assert "certFile" not in configuration
    assert (
        "--exporter-tls=/etc/npu-platform-exporter"
        in (spec_of(objects["Pod", "test-installation"])["containers"][0]["args"])
    )


def test_clients_show_their_certificate() -> None:
    """Prometheus, guard and `helm test`; the exporter asks for it."""
    objects = rendered(SERVED, CLIENT)
    arguments = spec_of(objects["DaemonSet", "exporter"])["containers"][0]["args"]
    assert "--tls-client-ca-file=/etc/npu-platform-tls/ca.crt" in arguments
    (endpoint,) = objects["PodMonitor", "exporter"]["spec"]["podMetricsEndpoints"]
    assert endpoint["tlsConfig"]["cert"] == {"secret": {"name": "visitor", "key": "tls.crt"}}
    assert endpoint["tlsConfig"]["keySecret"] == {"name": "visitor", "key": "tls.key"}
    for reader in (objects["Deployment", "guard"], objects["Pod", "test-installation"]):
        assert secrets(spec_of(reader)) == {"papers": ["ca.crt"], "visitor": ["tls.crt", "tls.key"]}
    assert secrets(spec_of(objects["DaemonSet", "exporter"])) == {"papers": []}
    assert (
        "certFile: /etc/npu-platform-exporter/tls.crt"
        in (objects["ConfigMap", "guard"]["data"]["guard.yaml"])
    )


def test_privileged_exporter_speaks_it_too() -> None:
    """The second DaemonSet, for Ascend, differs in its rights only."""
    found = rendered(SERVED, "exporter.ascendTelemetry.enabled=true")
    for name in ("exporter", "exporter-ascend"):
        (container,) = spec_of(found["DaemonSet", name])["containers"]
        assert "--tls-key-file=/etc/npu-platform-tls/tls.key" in container["args"]
        assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_half_of_it_is_refused() -> None:
    """A flag alone would leave probes and readers with plain HTTP: the key that works is named."""
    with pytest.raises(CommandError, match=r"set exporter\.tls\.secretName"):
        chart.render(settings=["exporter.extraArgs={--tls-cert-file=/x}"])
    with pytest.raises(CommandError, match=r"clientSecretName needs exporter\.tls\.secretName"):
        chart.render(settings=[CLIENT])
