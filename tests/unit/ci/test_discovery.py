"""Which Pods the Prometheus beside a cluster is told of."""

from ci.discovery import chosen
from ci.kube import Json
from ci.prometheus import service_targets


def pod(name: str, namespace: str, *, phase: str = "Running", **annotations: str) -> Json:
    """Return a Pod as the API server tells it."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {f"prometheus.io/{key}": value for key, value in annotations.items()},
        },
        "spec": {"nodeName": "node1"},
        "status": {"phase": phase, "podIP": "198.18.1.7"},
    }


def test_pods_that_ask_and_run_are_scraped() -> None:
    """Those of the platform need not ask; what has ended may have lost its address to another."""
    exporter = pod("exporter", "npu-platform")
    detector = pod("detector", "team", scrape="true")
    others = [
        pod("silent", "team"),
        pod("declines", "team", scrape="false"),
        pod("ended", "team", phase="Succeeded", scrape="true"),
        pod("failed", "npu-platform", phase="Failed"),
    ]
    assert chosen([exporter, detector, *others]) == ([exporter], [detector])


def test_a_service_names_its_port() -> None:
    """Without a word it is the platform's."""
    asked = [pod("a", "team", scrape="true"), pod("b", "team", scrape="true", port="9100")]
    found = service_targets(asked)
    assert [one["targets"] for one in found] == [["198.18.1.7:8080"], ["198.18.1.7:9100"]]
    assert found[0]["labels"] == {
        "job": "service", "namespace": "team", "pod": "a", "node": "node1",
    }  # fmt: skip
