"""prometheus-adapter on an embedded cluster: it serves external metrics to plain autoscalers.

The program is built from its Go module. The objects beside it are those that its Helm chart makes
where it has external rules; the module's own manifests know resource metrics only.
"""

import json
import re
from pathlib import Path
from typing import Final

import yaml

from ci import gobuild
from ci.cache import cache_dir
from ci.chart import Json
from ci.cluster import Cluster, pause
from ci.gobuild import Recipe
from ci.kube import Kube, until
from ci.lock import exclusive

VERSION: Final = "0.12.0"
NAMESPACE: Final = "prometheus-adapter"
IMAGE: Final = f"localhost/npu-platform/prometheus-adapter:{VERSION}"
_PAGE: Final = Path(__file__).resolve().parents[1] / "docs/autoscaling.md"
_MODULE: Final = "sigs.k8s.io/prometheus-adapter"
NAME: Final = "prometheus-adapter"
_GROUP: Final = "external.metrics.k8s.io"
_API: Final = f"v1beta1.{_GROUP}"
_PROGRAM: Final = "adapter"
_PORT: Final = 6443
_UID: Final = 65532
_READY_SECONDS: Final = 120
_LABELS: Final = {"app": NAME}


def build(cache: Path) -> Path:
    """Return the folder with the program ``adapter``, built on first use."""
    return gobuild.build(recipe, name="prometheus-adapter", version=VERSION, cache=cache)


def recipe() -> Recipe:
    """Return how to build it."""
    return Recipe(
        name="prometheus-adapter",
        version=VERSION,
        go_mod=gobuild.requiring(_MODULE, VERSION, name="prometheus-adapter"),
        packages=(f"{_MODULE}/cmd/{_PROGRAM}",),
    )


def install(cluster: Cluster, kube: Kube, *, url: str, rules: Json, relist_seconds: int) -> None:
    """Install it with the ``rules`` of values of its Helm chart, and wait until it answers.

    ``url`` is Prometheus's, ``relist_seconds`` how often it looks which series there are. Raises
    WaitError.
    """
    cluster.load_images([archive(cache_dir())])
    kube.apply(*objects(url=url, rules=rules, relist_seconds=relist_seconds))
    until(
        lambda: json.loads(kube.raw(f"/apis/{_GROUP}/v1beta1")),
        seconds=_READY_SECONDS,
        what=f"{_GROUP} served by prometheus-adapter",
        every=1,
    )


def remove(kube: Kube) -> None:
    """Take it away.

    The API service goes first: one that does not answer would hold up the deletion of namespaces.
    """
    for kind, name in (
        ("apiservice", _API),
        ("clusterrolebinding", f"{NAME}-delegator"),
        ("clusterrolebinding", f"{NAME}-reader"),
        ("clusterrolebinding", f"{NAME}-autoscaler"),
        ("clusterrole", f"{NAME}-reader"),
        ("clusterrole", f"{NAME}-external-metrics"),
        ("namespace", NAMESPACE),
    ):
        kube.delete(kind, name, "--wait=false")
    kube.delete("rolebinding", f"{NAME}-auth-reader", "-n", "kube-system")


def documented_rules() -> Json:
    """Return ``rules`` of the values for its Helm chart that docs/autoscaling.md gives."""
    (block,) = re.findall(r"```yaml\n# adapter.yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    rules: Json = yaml.safe_load(block)["rules"]
    return rules


def configuration(rules: Json) -> Json:
    """Return the program's configuration for the ``rules`` of values of its Helm chart."""
    return {"externalRules": rules["external"]}


def objects(*, url: str, rules: Json, relist_seconds: int) -> list[Json]:
    """Return what the Helm chart renders for external rules, in an order to be applied."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    autoscaler = {
        "kind": "ServiceAccount",
        "name": "horizontal-pod-autoscaler",
        "namespace": "kube-system",
    }
    reads = ["get", "list", "watch"]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", **_named("ServiceAccount", NAME)},
        _cluster_role("reader", "", ["namespaces", "pods", "services", "nodes"], reads),
        _cluster_role("external-metrics", _GROUP, ["*"], reads),
        _binding("delegator", "system:auth-delegator", account),
        _binding("reader", f"{NAME}-reader", account),
        _binding("autoscaler", f"{NAME}-external-metrics", autoscaler),
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{NAME}-auth-reader", "namespace": "kube-system"},
            "roleRef": _role("Role", "extension-apiserver-authentication-reader"),
            "subjects": [account],
        },
        {
            "apiVersion": "v1",
            **_named("ConfigMap", NAME),
            "data": {"config.yaml": yaml.safe_dump(configuration(rules))},
        },
        _deployment(url, relist_seconds),
        {
            "apiVersion": "v1",
            **_named("Service", NAME),
            "spec": {"selector": _LABELS, "ports": [{"port": 443, "targetPort": _PORT}]},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": _API},
            "spec": {
                "group": _GROUP,
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
                "service": {"name": NAME, "namespace": NAMESPACE},
            },
        },
    ]


def _named(kind: str, name: str) -> Json:
    return {"kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


def _role(kind: str, name: str) -> Json:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def _cluster_role(name: str, group: str, resources: list[str], verbs: list[str]) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{NAME}-{name}"},
        "rules": [{"apiGroups": [group], "resources": resources, "verbs": verbs}],
    }


def _binding(name: str, role: str, subject: Json) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{NAME}-{name}"},
        "roleRef": _role("ClusterRole", role),
        "subjects": [subject],
    }


def _deployment(url: str, relist_seconds: int) -> Json:
    probe = {"httpGet": {"path": "/readyz", "port": _PORT, "scheme": "HTTPS"}, "periodSeconds": 2}
    container = {
        "name": NAME,
        "image": IMAGE,
        "command": [f"/{_PROGRAM}"],
        "args": [
            "--cert-dir=/certificates",
            "--config=/etc/adapter/config.yaml",
            f"--metrics-relist-interval={relist_seconds}s",
            f"--prometheus-url={url}",
            f"--secure-port={_PORT}",
        ],
        "readinessProbe": probe,
        "resources": {"requests": {"cpu": "20m"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "certificates", "mountPath": "/certificates"},
            {"name": "configuration", "mountPath": "/etc/adapter", "readOnly": True},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        **_named("Deployment", NAME),
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    "serviceAccountName": NAME,
                    "containers": [container],
                    "volumes": [
                        {"name": "certificates", "emptyDir": {}},
                        {"name": "configuration", "configMap": {"name": NAME}},
                    ],
                },
            },
        },
    }


def archive(cache: Path) -> Path:
    """Return the image as a docker-archive, packed on first use."""
    programs = build(cache)
    path = programs.parent / "image.tar"
    with exclusive(cache / "prometheus-adapter" / ".image.lock", reason="it is packing its image"):
        if not path.is_file():
            temporary = path.with_suffix(".partial")
            files = {_PROGRAM: (programs / _PROGRAM).read_bytes()}
            temporary.write_bytes(
                pause.docker_archive(files, name=IMAGE, config={"User": f"{_UID}:{_UID}"})
            )
            temporary.replace(path)
    return path
