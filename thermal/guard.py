"""Puts the parts of the guard together."""

import functools
from dataclasses import dataclass, replace

from daemon.http import HttpServer
from daemon.probes import liveness, probe
from daemon.supervisor import Loop, Supervisor
from daemon.tls import ClientTls, Renewing
from thermal.acting import Actor
from thermal.api import NODES, Api
from thermal.clusterview import WatchedCluster
from thermal.config import Config
from thermal.dra.claimed import ClaimedDevices
from thermal.dra.exposition import PublishedDevices
from thermal.dra.objects import Objects
from thermal.dra.offers import node_offer
from thermal.dra.publisher import Publisher
from thermal.dra.rules import RULES, remarks_of, rule_record
from thermal.dra.ruling import Ruler
from thermal.dra.slices import LABEL, SLICES, slice_record
from thermal.dra.view import Caches
from thermal.evictor import Evictor
from thermal.journal import Journal
from thermal.judging import Judge, Judgement
from thermal.lease import Elector
from thermal.metrics import Metrics
from thermal.objects import node_record, pod_record
from thermal.pages import decisions_page, fleet_page, metrics_page, nodes_page
from thermal.prometheus import PrometheusSource
from thermal.scrape import PageReader, Scraper
from thermal.selftest import SelfTest
from thermal.source import Source
from thermal.warm import WarmSource
from thermal.watch import Cache
from thermal.writer import NodeActuator

#: A cache that heard nothing for so long is not to be relied on.
_CONTACT_SECONDS = 180.0
#: How long a turn of a loop waits for pages; later ones are for the next turn.
_SCRAPE_PATIENCE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Where the Pods of a component are found."""

    selector: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the guard runs and who it is; ``release`` marks the ResourceSlices it writes."""

    namespace: str
    identity: str
    lease_name: str
    exporters: Endpoints
    plugins: Endpoints
    release: str


def assemble(
    supervisor: Supervisor, config: Config, client: Api, place: Place, *, bind: str
) -> HttpServer:
    """Wire all parts of the guard into ``supervisor``; return its HTTP server.

    Raises OSError where the certificates of ``scrape.tls`` cannot be used.
    """
    namespace, identity = place.namespace, place.identity
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
        query={"labelSelector": place.exporters.selector},
        failed=metrics.api_error,
    )
    elector = Elector(
        client,
        namespace=namespace,
        name=place.lease_name,
        identity=identity,
        failed=metrics.api_error,
    )
    claims = _claims(client, place, metrics) if config.dra.enabled else None
    cluster = WatchedCluster(nodes, pods, claims)
    judge = Judge(
        config,
        cluster=cluster,
        source=_source(config, place.exporters),
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
        cluster=cluster.plain(),
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

    def shown() -> Judgement | None:
        judgement = judge.judgement
        if judgement is None or not config.dra.enabled:
            return judgement
        return replace(judgement, remarks=remarks_of(cluster.rules().values()))

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
            "/": fleet_page(shown, lambda: elector.holder, mode=config.mode),
            "/api/v1/decisions": decisions_page(
                journal, lambda: judge.judgement, lambda: elector.holder
            ),
            "/api/v1/nodes": nodes_page(shown, lambda: elector.holder),
        },
    )
    supervisor.add_service(server)
    supervisor.add_service(_Releasing(elector))
    supervisor.add_service(nodes)
    supervisor.add_service(pods)
    supervisor.add_loop(Loop(name="lease", period_seconds=2.0, step=elector.step))
    supervisor.add_loop(Loop(name="judge", period_seconds=1.0, step=judge.step))
    supervisor.add_loop(Loop(name="act", period_seconds=1.0, step=actor.step))
    if claims is not None:
        publisher = Publisher(
            Objects(client, kind="ResourceSlice", path=SLICES, failed=metrics.api_error),
            view=cluster,
            # Plugins that do not answer must not keep the writes waiting.
            pages=PageReader(
                "/dra",
                node_offer,
                port=place.plugins.port,
                patience_seconds=_SCRAPE_PATIENCE_SECONDS,
            ),
            leadership=elector,
            release=place.release,
        )
        ruler = Ruler(
            config,
            Objects(client, kind="DeviceTaintRule", path=RULES, failed=metrics.api_error),
            view=cluster,
            judgement=lambda: judge.judgement,
            leadership=elector,
            actuator=actuator,
            release=place.release,
        )
        metrics.add(PublishedDevices(cluster, publisher, ruler, leads=lambda: elector.term))
        supervisor.add_service(claims.plugins)
        supervisor.add_service(claims.slices)
        supervisor.add_service(claims.rules)
        supervisor.add_loop(Loop(name="rule", period_seconds=1.0, step=ruler.step))
        supervisor.add_loop(Loop(name="publish", period_seconds=1.0, step=publisher.step))
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
        if claims is not None:
            evictor.claimed = ClaimedDevices(client, cluster.slices)
        supervisor.add_loop(Loop(name="evict", period_seconds=1.0, step=evictor.step))
    supervisor.add_loop(Loop(name="self-test", period_seconds=10.0, step=self_test.step))
    return server


def _source(config: Config, exporters: Endpoints) -> Source:
    fleets = config.source == "exporters"
    tls = config.scrape.tls
    direct = Scraper(
        port=exporters.port,
        tls=None
        if tls is None
        else Renewing(ClientTls(ca=tls.ca_file, certificate=tls.cert_file, key=tls.key_file)),
        server_name="" if tls is None else tls.server_name,
        timeout_seconds=config.scrape.timeout_seconds,
        # The few warm nodes are waited for: a page handed out by a later read would be old.
        patience_seconds=_SCRAPE_PATIENCE_SECONDS if fleets else None,
    )
    if fleets:
        return direct
    fleet = PrometheusSource(config.prometheus)
    return WarmSource(direct=direct, fleet=fleet) if config.prometheus.scrape_warm else fleet


def _claims(client: Api, place: Place, metrics: Metrics) -> Caches:
    """Return the caches for Dynamic Resource Allocation."""
    return Caches(
        plugins=Cache(
            client,
            f"/api/v1/namespaces/{place.namespace}/pods",
            pod_record,
            query={"labelSelector": place.plugins.selector},
            failed=metrics.api_error,
        ),
        slices=Cache(
            client,
            SLICES,
            slice_record,
            query={"labelSelector": f"{LABEL}={place.release}"},
            failed=metrics.api_error,
        ),
        rules=Cache(
            client,
            RULES,
            rule_record,
            query={"labelSelector": f"{LABEL}={place.release}"},
            failed=metrics.api_error,
        ),
    )


class _Releasing:
    """Gives the Lease up at the end; taints and conditions stay for the successor."""

    def __init__(self, elector: Elector) -> None:
        self._elector = elector

    def start(self) -> None:
        """Nothing to do: the lease loop acquires."""

    def stop(self) -> None:
        """Release the Lease."""
        self._elector.release()
