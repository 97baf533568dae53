"""Builds the daemon from its parts."""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from daemon.http import HttpServer, Request, Response
from daemon.probes import liveness, probe
from daemon.supervisor import Loop, Supervisor
from kubelet.paths import device_plugins_dir, pod_resources_socket
from kubelet.podresources import HeldClaim, PodResourcesClient
from npu.host import Host
from npu.names import SIMULATED_MARKER
from npu.scan import driver_of, scan
from npu.watchdog import WatchedReader
from plugin import ascend, health, metrics
from plugin.board import Board
from plugin.cdi import SpecFile, real_path_on
from plugin.checkpoint import FILE_NAME, CheckpointWatch
from plugin.claims import Claims
from plugin.clamp import Clamp
from plugin.config import PluginConfig
from plugin.dra.drivers import Drivers
from plugin.dra.handover import Translator
from plugin.dra.prepared import boot_id
from plugin.dra.preparing import Site
from plugin.holders import PERIOD_SECONDS, Holders
from plugin.looks import Looker
from plugin.manager import POLL_SECONDS, Manager
from plugin.opener import Opener
from plugin.report import Report
from plugin.thermometer import Thermometer


def build(options: argparse.Namespace, config: PluginConfig) -> Supervisor:
    """Return the supervisor with loops and services, nothing started yet."""
    reader = WatchedReader()
    host = Host(options.root, options.node_prefix, reader, proc=options.proc or None)
    kubelet_dir = Path(options.kubelet_dir)
    ours = config.resources.__contains__
    client = PodResourcesClient(pod_resources_socket(kubelet_dir))
    translate = Translator(
        dra=config.mode == "dra", ours=ours, table=lambda: board.offer.value.table
    )

    def told() -> None:
        looking.wake.set()

    holders = Holders(
        lambda seconds: translate(client.list(seconds)), ours=ours, on_first_answer=told
    )
    claims = Claims(holders.known)
    checkpoint = CheckpointWatch(
        device_plugins_dir(kubelet_dir) / FILE_NAME,
        ours=ours,
        held=lambda: claims.held() if holders.problem() is None else None,
    )
    opener = Opener(host, open_nodes=config.health.open_device, load_libraries=config.health.dlopen)
    looker = Looker(
        host,
        config,
        scan=lambda: scan(host, library_paths=config.library.search_paths),
        probe=lambda npu: health.worse(health.probe(host, driver_of(npu), npu), opener.check(npu)),
        # What an Ascend driver tells costs a query; its cards report faults by themselves.
        load=lambda npu: () if ascend.is_ascend(npu) else driver_of(npu).load(host, npu),
    )
    spec_file = SpecFile(options.cdi_dir, host) if config.names_devices else None
    clamp = _clamp(host, options.state_dir, config)
    board = Board(
        config,
        look=looker.look,
        claims=claims,
        ascend_runtime=ascend.uses_runtime(
            config.ascend.injection, os.environ.get(ascend.ENV_RUNTIME)
        ),
        announce=spec_file.write if spec_file is not None else lambda _offer: None,
        elsewhere=lambda: translate.elsewhere,
        thermometer=_thermometer(host, config),
    )

    # One more series per counter that nobody queries.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    numbers = metrics.Metrics()

    def looked_first() -> None:
        asking.wake.set()

    looking = Loop(
        name="board",
        period_seconds=config.rescan_period_seconds,
        step=_look(board, clamp, numbers, first=looked_first),
    )

    def ask() -> None:
        # Of claims the kubelet names devices; which resource that is, the board tells.
        if board.looked:
            holders.step()
            checkpoint.step()

    asking = Loop(name="holders", period_seconds=PERIOD_SECONDS, step=ask)
    manager = (
        _drivers(
            options,
            config,
            host,
            board,
            claims,
            numbers,
            held=translate.claims,
            ask=asking.wake.set,
        )
        if config.mode == "dra"
        else Manager(
            kubelet_dir,
            board.offer,
            on_node=host.on_node,
            claims=claims,
            # A kubelet that was not there before may have been asked in vain just now.
            on_registered=(checkpoint.kubelet_started, asking.wake.set),
            metrics=numbers,
            stream_timeout_seconds=config.stream_timeout_seconds,
        )
    )
    report = Report(
        board,
        holders,
        checkpoint,
        clamp=clamp,
        spec_file=spec_file,
        stuck_on=lambda: reader.stuck_on,
    )
    supervisor = Supervisor()
    numbers.registry.register(
        metrics.State(
            (
                metrics.build_info,
                metrics.config_info(config),
                manager.collect,
                report.collect,
                metrics.loop_errors(lambda: supervisor.loops),
            )
        )
    )

    def exposition(_request: Request) -> Response:
        return Response(body=generate_latest(numbers.registry), content_type=CONTENT_TYPE_LATEST)

    def not_ready() -> list[str]:
        if not board.looked:
            return ["the board was not looked at yet"]
        unwritten = [] if spec_file is None or spec_file.problem is None else [spec_file.problem]
        return [*manager.problems(), *unwritten]

    supervisor.add_service(
        HttpServer(
            options.bind,
            {
                "/metrics": exposition,
                "/healthz": liveness(supervisor.stalled),
                "/readyz": probe(not_ready),
                "/allocations": report.allocations,
                **manager.pages(),
            },
        )
    )
    for service in (spec_file, clamp):
        if service is not None:
            supervisor.add_service(service)
    supervisor.add_service(manager)
    supervisor.add_loop(looking)
    supervisor.add_loop(Loop(name="kubelet", period_seconds=POLL_SECONDS, step=manager.step))
    supervisor.add_loop(asking)
    return supervisor


def _look(
    board: Board, clamp: Clamp | None, numbers: metrics.Metrics, *, first: Callable[[], None]
) -> Callable[[], None]:
    """Return a turn of the loop that looks at the board; ``first`` is called after the first."""

    def look() -> None:
        known = board.looked
        board.step()
        if not known:
            first()
        numbers.rescans.inc()
        if clamp is not None:
            clamp.step(board.offer.value.table.npus, board.heated(), time.monotonic())

    return look


def _clamp(host: Host, state_dir: Path, config: PluginConfig) -> Clamp | None:
    if not config.heat.clamp_frequency:
        return None
    return Clamp(host, state_dir, ratio=config.heat.clamp_ratio, pace=config.pace)


def _thermometer(host: Host, config: PluginConfig) -> Thermometer | None:
    if not config.heat.enabled:
        return None
    return Thermometer(
        host,
        config.thresholds,
        driver_of=driver_of,
        slots=config.policy.count,
        interval_seconds=config.rescan_period_seconds,
        pace=config.pace,
    )


def _drivers(
    options: argparse.Namespace,
    config: PluginConfig,
    host: Host,
    board: Board,
    claims: Claims,
    numbers: metrics.Metrics,
    *,
    held: Callable[[str], tuple[HeldClaim, ...] | None],
    ask: Callable[[], None],
) -> Drivers:
    """Return the kubelet's side for Dynamic Resource Allocation."""
    resolved = real_path_on(host)
    reader = None
    if config.dra.read_claims:
        # Only here: TLS costs memory that a node without the account need not spend.
        from plugin.dra.apiserver import ApiServer

        reader = ApiServer()
    drivers = Drivers(
        Path(options.kubelet_dir),
        board,
        site=Site(
            pool=options.node_name,
            boot=boot_id(),
            on_node=lambda path: host.on_node(resolved(path)),
            simulated=lambda: host.exists(SIMULATED_MARKER),
        ),
        cdi_dir=options.cdi_dir,
        claims=claims,
        metrics=numbers,
        reader=reader,
    )
    drivers.held, drivers.ask = held, ask
    return drivers
