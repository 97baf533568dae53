"""Command line of the exporter."""

import logging
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from daemon import logs
from daemon.config import ConfigError
from daemon.http import HttpServer
from daemon.logs import fields
from daemon.options import EXIT_CONFIGURATION, Options, absolute_path
from daemon.startup import end_with_the_reader
from daemon.supervisor import Supervisor
from daemon.tls import TlsFiles
from daemon.version import REVISION, VERSION
from exporter import settings
from exporter.app import Exporter
from exporter.exposition import render
from exporter.telemetry import Program
from kubelet.podresources import PodResourcesClient
from npu.host import Host

log = logging.getLogger(__name__)

DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"


def options() -> Options:
    """Return the options of ``python -m exporter``."""
    made = Options(
        "exporter",
        prefix="NPU_EXPORTER",
        description="Exports load and temperature of this board's NPUs for Prometheus.",
    )
    made.add_common()
    made.add("root", Path("/"), "where the board's files are mounted", kind=absolute_path)
    made.add(
        "proc",
        "",
        "where the board's /proc is, if not below the root; a container's own tells the same of"
        " drivers and memory",
    )
    made.add(
        "pod-resources-socket",
        DEFAULT_SOCKET,
        "socket on which the kubelet tells who holds which device; empty: nobody is asked",
    )
    made.add("config", str(settings.DEFAULT_PATH), "configuration file; the default may be missing")
    made.add(
        "npu-smi",
        "",
        "command that tells about Ascend chips (`auto`: look for npu-smi below the root); empty:"
        " nothing is asked. On a real board it needs a privileged container",
    )
    made.add("tls-cert-file", "", "certificate; with it the server speaks TLS")
    made.add("tls-key-file", "", "key of the certificate")
    made.add("tls-client-ca-file", "", "authority that clients must have a certificate of")
    made.add_flag("check", "check options and configuration, then exit")
    made.add_flag("once", "print one exposition, then exit; counters are 0")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter; return its exit code."""
    made = options()
    given = made.parse(arguments)
    logs.configure(given.log_level, given.log_format)
    for name in made.unknown_variables():
        log.warning("environment variable is no option", extra=fields(name=name))
    try:
        policy = settings.load(Path(given.config))
        tls = _tls(given)
    except (ConfigError, ValueError, OSError) as error:
        print(f"exporter: {error}", file=sys.stderr)  # noqa: T201 - before anything is served
        return EXIT_CONFIGURATION
    if given.check:
        return 0
    socket = given.pod_resources_socket
    exporter = Exporter(
        Host(given.root, proc=given.proc or None),
        PodResourcesClient(socket) if socket else None,
        policy,
        npu_smi=_npu_smi(given),
    )
    exporter.board.step()
    if given.once:
        exporter.telemetry.step()
        exporter.allocation.step()
        exporter.sampler.step()
        end_with_the_reader()
        sys.stdout.buffer.write(render(exporter.scrape())[0])
        return 0
    return _serve(exporter, given, tls)


def _serve(exporter: Exporter, given: Namespace, tls: TlsFiles | None) -> int:
    log.info(
        "starting",
        extra=fields(
            version=VERSION,
            revision=REVISION,
            pid=os.getpid(),
            root=given.root,
            bind=given.bind,
            pod_resources_socket=given.pod_resources_socket,
        ),
    )
    supervisor = Supervisor()
    for loop in exporter.loops:
        supervisor.add_loop(loop)
    supervisor.add_service(
        HttpServer(
            given.bind,
            exporter.routes(supervisor.stalled),
            tls=tls,
            observe=exporter.own.answered,
        )
    )
    return supervisor.run()


def _npu_smi(given: Namespace) -> Program | None:
    if not given.npu_smi:
        return None
    # Most boards have no Ascend chip and do without the modules for child processes.
    from exporter.npu_smi import NpuSmi

    return NpuSmi(given.npu_smi, given.root)


def _tls(given: Namespace) -> TlsFiles | None:
    certificate, key, authority = (
        given.tls_cert_file,
        given.tls_key_file,
        given.tls_client_ca_file,
    )
    if not (certificate or key or authority):
        return None
    if not (certificate and key):
        raise ValueError("TLS needs both --tls-cert-file and --tls-key-file")
    files = TlsFiles(certificate=certificate, key=key, client_ca=authority or None)
    # Files that cannot be used are found now, by --check too.
    files.context()
    return files
