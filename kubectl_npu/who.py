"""``kubectl npu who``: which Pod has which device, whose it is, and since when. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kubectl_npu.client import Json
from kubectl_npu.picture import ENDED, Picture, full_name, holders, listed, requests


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderRow:
    """A Pod and what it holds. ``team`` is its namespace, ``since`` when the node took it.

    ``devices`` is None where the exporter of the node could not be asked.
    """

    node: str
    devices: tuple[str, ...] | None
    team: str
    pod: str
    asked: str
    owner: str | None = None
    since: str | None = None
    used: str = ""


def rows(picture: Picture, namespace: str | None = None) -> Iterator[HolderRow]:
    """Yield a row per Pod that holds NPUs, by node; ``namespace`` None is all of them."""
    found = [
        (pod, asked)
        for pod in picture.pods
        if pod["spec"].get("nodeName")
        and pod.get("status", {}).get("phase") not in ENDED
        and namespace in (None, pod["metadata"].get("namespace"))
        and (asked := requests(pod, picture.resources))
    ]
    quotas = _quotas(picture)
    for pod, asked in sorted(
        found, key=lambda item: (item[0]["spec"]["nodeName"], item[0]["metadata"]["name"])
    ):
        node = pod["spec"]["nodeName"]
        yield HolderRow(
            node=node,
            devices=_devices(picture, node, full_name(pod)),
            team=pod["metadata"].get("namespace", ""),
            pod=pod["metadata"]["name"],
            asked=listed(asked),
            owner=_owner(pod),
            since=pod.get("status", {}).get("startTime"),
            used=", ".join(
                quotas[key]
                for name in asked
                if (key := (pod["metadata"].get("namespace", ""), name)) in quotas
            ),
        )


def _devices(picture: Picture, node: str, pod: str) -> tuple[str, ...] | None:
    if node not in picture.metrics:
        return None
    return tuple(device for device, pods in holders(picture, node).items() if pod in pods)


def _owner(pod: Json) -> str | None:
    owner = next(
        (o for o in pod["metadata"].get("ownerReferences", []) if o.get("controller")), None
    )
    if owner is None:
        return None
    name, suffix = owner["name"], pod["metadata"].get("labels", {}).get("pod-template-hash")
    if owner["kind"] == "ReplicaSet" and suffix and name.endswith(f"-{suffix}"):
        return f"Deployment/{name.removesuffix(f'-{suffix}')}"
    return f"{owner['kind']}/{name}"


def _quotas(picture: Picture) -> Mapping[tuple[str, str], str]:
    """Return "used of hard" by namespace and resource."""
    shares: dict[tuple[str, str], str] = {}
    for quota in picture.quotas:
        status = quota.get("status", {})
        for key, hard in status.get("hard", {}).items():
            name = key.removeprefix("requests.")
            if name in picture.resources:
                used = status.get("used", {}).get(key, "0")
                shares[quota["metadata"]["namespace"], name] = f"{used} of {hard}"
    return shares
