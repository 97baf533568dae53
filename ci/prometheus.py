"""A Prometheus server beside an embedded cluster: the scraping half of demo and tests.

It runs in the cluster's network namespace, where the Pods' addresses lead to the Pods, and its page
is reachable from the machine.
"""

import json
import os
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ci import tools
from ci.cluster import Cluster, daemons, processes
from ci.cluster.instance import registry
from ci.kube import Json, until

_STOP_SECONDS = 10.0
_START_SECONDS = 30.0
_PORT = 8080
_SERVER_PORT = 9090
_COMPONENT = "app.kubernetes.io/component"
_PORT_ANNOTATION = "prometheus.io/port"


def configuration(
    targets: Path,
    *,
    scrape_seconds: float,
    rules: Path | None = None,
    others: Mapping[str, str] | None = None,
) -> Json:
    """Return the configuration: the targets listed in the file ``targets``, and a file of rules.

    ``others`` are jobs of other projects, job → address with path. Debian's Prometheus is built
    without the Kubernetes discovery, so the list is written here.
    """
    interval = f"{int(scrape_seconds * 1000)}ms"
    return {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": [] if rules is None else [str(rules)],
        "scrape_configs": [
            *(
                {
                    "job_name": f"npu-platform-{job}",
                    "honor_labels": honours,
                    "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
                    "relabel_configs": [
                        {"source_labels": ["job"], "action": action, "regex": "npu-platform-guard"}
                    ],
                }
                # As the chart's monitors: only the guard says which node a series is about.
                for job, honours, action in (("nodes", False, "drop"), ("guard", True, "keep"))
            ),
            *(
                {
                    "job_name": job,
                    "honor_labels": True,
                    "metrics_path": f"/{address.partition('/')[2]}",
                    "static_configs": [{"targets": [address.partition("/")[0]]}],
                }
                for job, address in (others or {}).items()
            ),
        ],
    }


def targets_of(pods: list[Json]) -> list[Json]:
    """Return the target list of the platform's ready Pods, labelled as the chart's monitors do."""
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{_PORT}"],
            "labels": {
                "job": f"npu-platform-{pod['metadata']['labels'][_COMPONENT]}",
                "node": pod["spec"]["nodeName"],
            },
        }
        for pod in pods
        if _COMPONENT in pod["metadata"].get("labels", {}) and pod["status"].get("podIP")
    ]


def service_targets(pods: list[Json]) -> list[Json]:
    """Return the target list of Pods of a service, labelled as an operator's PodMonitor does.

    The port is the platform's, unless the annotation ``prometheus.io/port`` says another.
    """
    return [
        {
            "targets": [f"{pod['status']['podIP']}:{_port(pod)}"],
            "labels": {
                "job": "service",
                "namespace": pod["metadata"]["namespace"],
                "pod": pod["metadata"]["name"],
                "node": pod["spec"]["nodeName"],
            },
        }
        for pod in pods
        if pod["status"].get("podIP")
    ]


def _port(pod: Json) -> str:
    annotations = pod["metadata"].get("annotations", {})
    return str(annotations.get(_PORT_ANNOTATION, _PORT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A server in the network namespace of an embedded cluster, which ends with that cluster."""

    directory: Path
    namespace: str
    address: str

    @classmethod
    def beside(cls, cluster: Cluster) -> "Prometheus":
        """Return the server of a cluster, running or not; raises LookupError for no cluster."""
        instance = registry().read(cluster.name)
        if instance is None:
            raise LookupError(f"there is no cluster {cluster.name}")
        return cls(
            directory=cluster.folder / "prometheus",
            namespace=instance.plan.namespace,
            address=str(instance.plan.api_address),
        )

    @property
    def log(self) -> Path:
        """What it says."""
        return self.directory / "prometheus.log"

    @property
    def url(self) -> str:
        """Where its page and its API are, from this machine."""
        return f"http://{self.address}:{_SERVER_PORT}"

    def start(
        self,
        pods: list[Json],
        *,
        scrape_seconds: float = 2.0,
        rules: Json | None = None,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """Start the server, replacing one that runs, and wait until it answers.

        ``rules`` is the content of a file of rules, ``others`` is job → address with path. It goes
        on after this process ends. Raises WaitError where it does not come up.
        """
        self.stop()
        # Series of Pods that are gone would live on for five minutes after a restart.
        shutil.rmtree(self.directory / "data", ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.scrape(pods)
        file = self.directory / "prometheus.yaml"
        # JSON is YAML.
        ruled = None if rules is None else self.directory / "rules.yaml"
        if ruled is not None:
            ruled.write_text(json.dumps(rules))
        content = configuration(
            self._targets, scrape_seconds=scrape_seconds, rules=ruled, others=others
        )
        file.write_text(json.dumps(content))
        daemons.start(
            [
                "nsenter",
                f"--net=/run/netns/{self.namespace}",
                tools.prometheus(),
                f"--config.file={file}",
                f"--storage.tsdb.path={self.directory / 'data'}",
                f"--web.listen-address={self.address}:{_SERVER_PORT}",
            ],
            log=self.log,
            environment={},
        )
        until(
            self.answers,
            seconds=_START_SECONDS,
            what=f"an answer of Prometheus (log: {self.log})",
        )

    def stop(self) -> None:
        """End the server if it runs."""
        network = Path(f"/run/netns/{self.namespace}").stat().st_ino
        processes.end(
            lambda process: (
                process.net_namespace == network and process.program == tools.prometheus().name
            ),
            patience_seconds=_STOP_SECONDS,
            what="Prometheus",
        )

    def scrape(self, pods: list[Json], services: list[Json] | None = None) -> None:
        """Scrape these Pods of the platform and of services from now on, and no others."""
        # Not shared with another process that may write at the same time.
        fresh = self._targets.with_suffix(f".{os.getpid()}.part")
        fresh.write_text(json.dumps([*targets_of(pods), *service_targets(services or [])]))
        fresh.rename(self._targets)

    def query(self, expression: str) -> list[Json]:
        """Return the instant vector of a PromQL expression."""
        query = urllib.parse.urlencode({"query": expression})
        answer = self._get(f"/api/v1/query?{query}")
        result: list[Json] = answer["data"]["result"]
        return result

    def query_range(self, expression: str, *, since: float, step: str) -> list[Json]:
        """Return the series of an expression from ``since`` (Unix time) until now."""
        bounds = {"start": since, "end": time.time(), "step": step}
        query = urllib.parse.urlencode({"query": expression} | bounds)
        result: list[Json] = self._get(f"/api/v1/query_range?{query}")["data"]["result"]
        return result

    def rules(self) -> list[Json]:
        """Return the groups of rules with the state of each rule."""
        groups: list[Json] = self._get("/api/v1/rules")["data"]["groups"]
        return groups

    def value(self, expression: str) -> float | None:
        """Return the one value of an expression, None where it has no result."""
        result = self.query(expression)
        return float(result[0]["value"][1]) if len(result) == 1 else None

    def healthy_targets(self) -> list[Json]:
        """Return the targets whose last scrape worked."""
        targets = self._get("/api/v1/targets?state=active")["data"]["activeTargets"]
        return [target for target in targets if target["health"] == "up"]

    def answers(self) -> bool:
        """Tell whether it is up."""
        try:
            self._get("/api/v1/status/runtimeinfo")
        except OSError:
            return False
        return True

    def _get(self, path: str) -> Json:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    @property
    def _targets(self) -> Path:
        return self.directory / "targets.json"
