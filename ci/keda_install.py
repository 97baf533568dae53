"""KEDA on an embedded cluster: one image of both programs, and the module's own manifests."""

import json
from pathlib import Path
from typing import Final

import yaml

from ci import keda
from ci.cache import cache_dir
from ci.chart import Json
from ci.cluster import Cluster, pause
from ci.kube import Kube, until
from ci.lock import exclusive

NAMESPACE: Final = "keda"
IMAGE: Final = f"localhost/npu-platform/keda:{keda.VERSION}"
_PARTS: Final = ("general", "service_account", "rbac", "manager", "metrics-server")
_PROGRAMS: Final = {"keda-operator": "/operator", "keda-metrics-apiserver": "/adapter"}
_UID: Final = 65532
_READY_SECONDS: Final = 180


def install(cluster: Cluster, kube: Kube) -> None:
    """Install KEDA and wait until it answers the autoscaler's questions.

    Without its admission webhooks, and without DNS: the adapter reaches the operator by the address
    of its Service. Raises WaitError.
    """
    cluster.load_images([archive(cache_dir())])
    # The definitions are larger than the annotation that a client-side apply would write.
    kube.kubectl("apply", "--server-side", "-f", "-", stdin=_definitions())
    manifests = _manifests()
    first = [one for one in manifests if one["kind"] in ("Namespace", "Service")]
    for item in sorted(first, key=lambda one: str(one["kind"])):
        kube.apply(item)
    address = kube.get("service", "keda-operator", "-n", NAMESPACE)["spec"]["clusterIP"]
    kube.kubectl(
        *("apply", "-f", "-"),
        stdin=yaml.safe_dump_all(adapted(item, address) for item in manifests if item not in first),
    )
    until(
        lambda: json.loads(kube.raw("/apis/external.metrics.k8s.io/v1beta1")),
        seconds=_READY_SECONDS,
        what="external.metrics.k8s.io served by KEDA",
        every=1,
    )


def remove(kube: Kube) -> None:
    """Take KEDA away once it has let its objects go; they wait for it with a finalizer.

    The API service goes first: one that does not answer would hold up the deletion of namespaces.
    """
    until(
        lambda: kube.items("scaledobjects", "-A"),
        lambda seen: not seen,
        seconds=60,
        what="ScaledObjects are gone",
    )
    manifests = sorted(_manifests(), key=lambda one: str(one["kind"]) != "APIService")
    gone = yaml.safe_dump_all(manifests)
    options = ("delete", "--ignore-not-found", "--wait=false", "-f", "-")
    kube.kubectl(*options, stdin=gone)
    kube.kubectl(*options, stdin=_definitions())


def _manifests() -> list[Json]:
    """Return the module's manifests but definitions and admission webhooks."""
    source = keda.module(cache_dir()) / "config"
    return [
        item
        for part in _PARTS
        for file in sorted((source / part).glob("*.yaml"))
        if file.name != "kustomization.yaml"
        for item in yaml.safe_load_all(file.read_text())
        if item
    ]


def _definitions() -> str:
    """Return the definitions of KEDA's kinds."""
    folder = keda.module(cache_dir()) / "config/crd/bases"
    return "\n---\n".join(file.read_text() for file in sorted(folder.glob("*.yaml")))


def adapted(item: Json, operator_address: str) -> Json:
    """Return a manifest of the module for this cluster: our image, impatient probes, no DNS."""
    if item["kind"] != "Deployment":
        return item
    name = item["metadata"]["name"]
    spec = item["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    container["image"] = IMAGE
    container["imagePullPolicy"] = "IfNotPresent"
    container["command"] = [_PROGRAMS[name]]
    container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 2}
    container["livenessProbe"] |= {"initialDelaySeconds": 60, "failureThreshold": 10}
    # What the machine has is little, and a limit would only make it slow.
    container["resources"] = {"requests": {"cpu": "20m"}}
    spec["hostAliases"] = [
        {"ip": operator_address, "hostnames": [f"keda-operator.{NAMESPACE}.svc.cluster.local"]}
    ]
    return item


def archive(cache: Path) -> Path:
    """Return the image as a docker-archive, packed on first use."""
    programs = keda.build(cache)
    path = programs.parent / "image.tar"
    with exclusive(cache / "keda" / ".image.lock", reason="it is packing KEDA's image"):
        if not path.is_file():
            temporary = path.with_suffix(".partial")
            files = {name: (programs / name).read_bytes() for name in keda.COMMANDS}
            temporary.write_bytes(
                pause.docker_archive(files, name=IMAGE, config={"User": f"{_UID}:{_UID}"})
            )
            temporary.replace(path)
    return path
