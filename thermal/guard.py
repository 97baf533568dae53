"""Puts the parts of the guard together."""

import functools
from dataclasses import dataclass

from daemon.http import HttpServer
from daemon.probes import liveness, probe
from daemon.supervisor import Loop, Supervisor
from thermal.acting import Actor
from thermal.api import NODES, Api
from thermal.config import Config
from thermal.evictor import Evictor
from thermal.journal import Journal
from thermal.judging import Judge
from thermal.lease import Elector
from thermal.metrics import Metrics
from thermal.objects import NodeRecord, PodRecord, node_record, pod_record
from thermal.pages import decisions_page, fleet_page, metrics_page, nodes_page
from thermal.prometheus import PrometheusSource
from thermal.scrape import Scraper
from thermal.selftest import SelfTest
from thermal.source import Source
from thermal.warm import WarmSource
from thermal.watch import Cache
from thermal.writer import NodeActuator

#: A cache that heard nothing for so long is not to be relied on.
_CONTACT_SECONDS = 180.0
#: How long a turn of the judging loop waits for pages; later ones are judged in the next turn.
_SCRAPE_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporters:
    """Where exporter Pods are found."""

    selector: str
    port: int


def assemble(
    supervisor: Supervisor,
    config: Config,
    client: Api,
    *,
    namespace: str,
    identity: str,
    lease_name: str,
    exporters: Exporters,
    bind: str,
) -> HttpServer:
    """Wire all parts of the guard into ``supervisor``; return its HTTP server."""
    metrics = Metrics(mode=config.mode)
    journal = Journal()
    nodes = Cache(
        client,
        NODES,
        functools.partial(node_record, keep_labels=config.budget.domain_labels),
        failed=metrics.api_error,
    )
    pods = Cache(
        client,
        f"/api/v1/namespaces/{namespace}/pods",
        pod_record,
        query={"labelSelector": exporters.selector},
        failed=metrics.api_error,
    )
    elector = Elector(
        client, namespace=namespace, name=lease_name, identity=identity, failed=metrics.api_error
    )
    cluster = _Caches(nodes, pods)
    judge = Judge(
        config,
        cluster=cluster,
        source=_source(config, exporters),
        leadership=elector,
        metrics=metrics,
        journal=journal,
    )
    actuator = NodeActuator(
        client,
        allowed=lambda: elector.term is not None,
        instance=identity,
        failed=metrics.api_error,
        journal=journal,
    )
    actor = Actor(
        config,
        cluster=cluster,
        judgement=lambda: judge.judgement,
        leadership=elector,
        actuator=actuator,
        metrics=metrics,
        namespace=namespace,
    )
    self_test = SelfTest(
        client,
        nodes=nodes.records,
        leads=lambda: elector.term is not None,
        tell=metrics.self_tested,
    )

    def problems() -> list[str]:
        return [
            f"{what} are not read from the API server"
            for what, cache in (("nodes", nodes), ("exporter Pods", pods))
            if not cache.fresh(_CONTACT_SECONDS)
        ]

    server = HttpServer(
        bind,
        {
            "/healthz": liveness(supervisor.stalled),
            "/readyz": probe(problems),
            "/metrics": metrics_page(metrics),
            "/": fleet_page(lambda: judge.judgement, lambda: elector.holder, mode=config.mode),
            "/api/v1/decisions": decisions_page(
                journal, lambda: judge.judgement, lambda: elector.holder
            ),
            "/api/v1/nodes": nodes_page(lambda: judge.judgement, lambda: elector.holder),
        },
    )
    supervisor.add_service(server)
    supervisor.add_service(_Releasing(elector))
    supervisor.add_service(nodes)
    supervisor.add_service(pods)
    supervisor.add_loop(Loop(name="lease", period_seconds=2.0, step=elector.step))
    supervisor.add_loop(Loop(name="judge", period_seconds=1.0, step=judge.step))
    supervisor.add_loop(Loop(name="act", period_seconds=1.0, step=actor.step))
    if config.eviction.enabled:
        evictor = Evictor(
            config,
            client,
            cluster=cluster,
            judgement=lambda: judge.judgement,
            leadership=elector,
            actuator=actuator,
            metrics=metrics,
        )
        supervisor.add_loop(Loop(name="evict", period_seconds=1.0, step=evictor.step))
    supervisor.add_loop(Loop(name="self-test", period_seconds=10.0, step=self_test.step))
    return server


def _source(config: Config, exporters: Exporters) -> Source:
    fleets = config.source == "exporters"
    direct = Scraper(
        port=exporters.port,
        timeout_seconds=config.scrape.timeout_seconds,
        # The few warm nodes are waited for: a page handed out by a later read would be old.
        patience_seconds=_SCRAPE_PATIENCE_SECONDS if fleets else None,
    )
    if fleets:
        return direct
    fleet = PrometheusSource(config.prometheus)
    return WarmSource(direct=direct, fleet=fleet) if config.prometheus.scrape_warm else fleet


class _Caches:
    """The caches as the loops see them."""

    def __init__(self, nodes: Cache[NodeRecord], pods: Cache[PodRecord]) -> None:
        self._nodes = nodes
        self._pods = pods

    @property
    def synced(self) -> bool:
        """Whether both were read once."""
        return self._nodes.synced and self._pods.synced

    def nodes(self) -> dict[str, NodeRecord]:
        """Return all Nodes by name."""
        return self._nodes.records()

    def pods(self) -> dict[str, PodRecord]:
        """Return the exporter Pods by name."""
        return self._pods.records()


class _Releasing:
    """Gives the Lease up at the end; taints and conditions stay for the successor."""

    def __init__(self, elector: Elector) -> None:
        self._elector = elector

    def start(self) -> None:
        """Nothing to do: the lease loop acquires."""

    def stop(self) -> None:
        """Release the Lease."""
        self._elector.release()
