"""Command line of the simulator, and the daemon built from its parts."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from daemon import logs
from daemon.config import ConfigError
from daemon.http import HttpServer, Request, Response
from daemon.logs import fields
from daemon.options import EXIT_CONFIGURATION, Options, absolute_path
from daemon.probes import liveness, probe
from daemon.supervisor import Loop, Supervisor
from daemon.version import REVISION, VERSION
from kubelet.paths import DEFAULT_KUBELET_DIR, pod_resources_socket
from kubelet.podresources import PodResourcesClient
from npu.host import Host
from npu.names import SIMULATED_BOARD_DIR
from simulator import settings as configuration
from simulator.allocation import PERIOD_SECONDS, Allocation
from simulator.control import ControlFile
from simulator.generations import Generations
from simulator.player import LOOK_SECONDS, WINDOW_SECONDS, Player
from simulator.settings import Settings

log = logging.getLogger(__name__)


def options() -> Options:
    """Return the options of ``python -m simulator``."""
    made = Options(
        "simulator", prefix="NPU_SIMULATOR", description="Plays an NPU board in a directory."
    )
    made.parser.add_argument(
        "command",
        nargs="?",
        choices=["run", "clean"],
        default="run",
        help="run (default), or clean: remove the tree from the board directory and exit",
    )
    made.add(
        "board-dir", Path(SIMULATED_BOARD_DIR), "where the board's tree is", kind=absolute_path
    )
    made.add("node-name", "", "name of this node, by which the board is chosen")
    made.add(
        "real-root",
        Path("/"),
        "where the real machine's /sys is seen; nothing is simulated where it has an NPU",
        kind=absolute_path,
    )
    made.add(
        "pod-resources-socket",
        str(pod_resources_socket(DEFAULT_KUBELET_DIR)),
        "socket on which the kubelet tells who holds which device",
    )
    made.add(
        "config",
        configuration.DEFAULT_PATH,
        "configuration file; the default may be missing",
        kind=Path,
    )
    made.add_flag("check", "check options and configuration, then exit")
    made.add_common()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulator; return its exit code (0 stopped, 1 failed, 2 bad configuration)."""
    made = options()
    given = made.parse(arguments)
    logs.configure(given.log_level, given.log_format)
    for name in made.unknown_variables():
        log.warning("environment variable is no option", extra=fields(name=name))
    try:
        settings = configuration.load(given.config)
    except ConfigError as error:
        sys.stderr.write(f"simulator: {error}\n")
        return EXIT_CONFIGURATION
    if given.check:
        return 0
    if given.command == "clean":
        removed = Generations(given.board_dir).remove()
        log.info("cleaned", extra=fields(board_dir=given.board_dir, removed=removed))
        return 0
    log.info(
        "starting",
        extra=fields(
            version=VERSION,
            revision=REVISION,
            board_dir=given.board_dir,
            node_name=given.node_name,
            real_root=given.real_root,
            board=settings.boards.of(given.node_name),
        ),
    )
    return build(given, settings).run()


def build(given: argparse.Namespace, settings: Settings) -> Supervisor:
    """Return the supervisor with loops and services, nothing started yet."""
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    from simulator import metrics

    board_name = settings.boards.of(given.node_name)
    generations = Generations(given.board_dir)
    control = ControlFile(given.board_dir)
    allocation = Allocation(PodResourcesClient(given.pod_resources_socket).list)
    player = Player(
        board_name=board_name,
        settings=settings,
        real=Host(given.real_root),
        generations=generations,
        control=control,
        held=allocation.held,
    )
    supervisor = Supervisor()
    exposed = metrics.registry(
        metrics.State(
            board_name=board_name,
            player=player,
            control=control,
            allocation=allocation,
            generations=generations,
            loops=lambda: supervisor.loops,
        )
    )

    def exposition(_request: Request) -> Response:
        return Response(body=generate_latest(exposed), content_type=CONTENT_TYPE_LATEST)

    supervisor.add_service(
        HttpServer(
            given.bind,
            {
                "/metrics": exposition,
                "/healthz": liveness(supervisor.stalled),
                "/readyz": probe(player.problems),
            },
        )
    )
    supervisor.add_loop(Loop(name="board", period_seconds=LOOK_SECONDS, step=player.look))
    supervisor.add_loop(Loop(name="windows", period_seconds=WINDOW_SECONDS, step=player.play))
    supervisor.add_loop(
        Loop(name="allocations", period_seconds=PERIOD_SECONDS, step=allocation.step)
    )
    return supervisor
