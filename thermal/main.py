"""Builds the guard from its options and runs it."""

import logging
import os
import socket
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from daemon import config as configuration
from daemon import logs
from daemon.logs import fields
from daemon.options import EXIT_CONFIGURATION, Options, port, positive_seconds
from daemon.startup import end_with_the_reader
from daemon.supervisor import Supervisor
from thermal.config import Config
from thermal.errors import GuardError

if TYPE_CHECKING:
    # The API client takes a second to import, which --help and --check need not wait for.
    from thermal.kube import Client

log = logging.getLogger(__name__)


def _options(description: str, environment: Mapping[str, str] | None) -> Options:
    options = Options(
        "thermal", prefix="NPU_GUARD", description=description, environment=environment
    )
    options.add_common()
    options.add("config", "/etc/npu-platform/guard.yaml", "configuration file")
    options.add_flag("check", "check the configuration and exit")
    options.add("namespace", "default", "namespace of exporter Pods and Lease")
    options.add("pod-name", socket.gethostname(), "identity in the Lease and in Events")
    options.add(
        "exporter-selector",
        "app.kubernetes.io/component=exporter",
        "labels of the exporter Pods",
    )
    options.add("exporter-port", 8080, "port of the exporters", kind=port)
    options.add(
        "plugin-selector",
        "app.kubernetes.io/component=plugin",
        "labels of the plugin Pods of both modes (dra.enabled)",
    )
    options.add("plugin-port", 8080, "port of the plugins", kind=port)
    options.add("release", "npu-platform", "what ResourceSlices are marked with")
    options.add("lease-name", "npu-platform-guard", "name of the Lease")
    options.add("kubeconfig", "", "kubeconfig file; empty uses the Pod's service account")
    return options


def main(
    arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None
) -> int:
    """Run the guard, or the clean-up command; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["cleanup"]:
        return _cleanup(given[1:], environment)
    if given[:1] == ["ghosts"]:
        return _ghosts(given[1:], environment)
    if given[:1] == ["replay"]:
        from thermal.replay import command

        end_with_the_reader()
        return command.main(given[1:])
    options = _options(
        "Keep hot boards from getting more work. `cleanup` as first argument removes everything"
        " the guard wrote on Nodes, `ghosts` deletes NPU Pods that failed when their board started,"
        " `replay` tries settings on recorded temperatures.",
        environment,
    )
    chosen = options.parse(given)
    logs.configure(chosen.log_level, chosen.log_format)
    for name in options.unknown_variables():
        log.warning("unknown environment variable", extra=fields(variable=name))
    try:
        config = configuration.load(Path(chosen.config), Config)
        if chosen.check:
            return 0
        client = _client(chosen.kubeconfig, environment)
    except (configuration.ConfigError, GuardError) as error:
        print(error, file=sys.stderr)  # noqa: T201 (one line before logging matters)
        return EXIT_CONFIGURATION
    return _serve(chosen, config, client)


def _serve(chosen: Namespace, config: Config, client: "Client") -> int:
    log.info(
        "starting",
        extra=fields(
            mode=config.mode,
            taint=config.taint,
            namespace=chosen.namespace,
            identity=chosen.pod_name,
            exporter_selector=chosen.exporter_selector,
        ),
    )
    from thermal.guard import Endpoints, Place, assemble

    supervisor = Supervisor()
    place = Place(
        namespace=chosen.namespace,
        identity=chosen.pod_name,
        lease_name=chosen.lease_name,
        exporters=Endpoints(selector=chosen.exporter_selector, port=chosen.exporter_port),
        plugins=Endpoints(selector=chosen.plugin_selector, port=chosen.plugin_port),
        release=chosen.release,
    )
    try:
        assemble(supervisor, config, client, place, bind=chosen.bind)
    except OSError as error:
        # Certificates that cannot be read or used (scrape.tls).
        print(error, file=sys.stderr)  # noqa: T201 (as for any other bad configuration)
        return EXIT_CONFIGURATION
    return supervisor.run()


def _cleanup(arguments: Sequence[str], environment: Mapping[str, str] | None) -> int:
    options = _options("Remove everything the guard wrote on Nodes.", environment)
    options.add_flag("claims", "also delete ResourceSlices and DeviceTaintRules of --release")
    options.add_flag("capacity", "also remove NPU resources whose count is zero from Node status")
    options.add("wait-for-pods", "", "first wait until no Pod with these labels is left")
    options.add("wait-seconds", 120.0, "how long to wait for them at most", kind=positive_seconds)
    chosen = options.parse(arguments)
    logs.configure(chosen.log_level, chosen.log_format)
    from thermal import cleanup

    try:
        client = _client(chosen.kubeconfig, environment)
        if chosen.wait_for_pods and not cleanup.wait_for_pods(
            client,
            namespace=chosen.namespace,
            selector=chosen.wait_for_pods,
            timeout_seconds=chosen.wait_seconds,
        ):
            log.error("pods are still there", extra=fields(selector=chosen.wait_for_pods))
            return 1
        report = cleanup.clean(client, capacity=chosen.capacity)
        if chosen.claims:
            report += cleanup.clean_claims(client, release=chosen.release)
    except GuardError as error:
        log.error("clean-up failed", extra=fields(error=error))  # noqa: TRY400 (one line)
        return 1
    log.info(
        "clean-up done",
        extra=fields(changed=len(report.changed), failed=",".join(report.failed) or None),
    )
    return 1 if report.failed else 0


def _ghosts(arguments: Sequence[str], environment: Mapping[str, str] | None) -> int:
    options = _options("Delete NPU Pods that failed when their board started.", environment)
    options.add("resources", "rockchip.com/npu,huawei.com/Ascend", "beginnings of resource names")
    options.add_flag("without-controller", "also Pods that no controller replaces")
    chosen = options.parse(arguments)
    logs.configure(chosen.log_level, chosen.log_format)
    from thermal import ghosts

    resources = [name for name in chosen.resources.split(",") if name]
    try:
        client = _client(chosen.kubeconfig, environment)
        report = ghosts.sweep(client, resources, without_controller=chosen.without_controller)
    except GuardError as error:
        log.error("ghosts not deleted", extra=fields(error=error))  # noqa: TRY400 (one line)
        return 1
    log.info("done", extra=fields(deleted=report.deleted, failed=report.failed))
    return 1 if report.failed else 0


def _client(kubeconfig: str, environment: Mapping[str, str] | None) -> "Client":
    from thermal.kube import Client

    if kubeconfig:
        return Client.from_kubeconfig(Path(kubeconfig))
    return Client.in_cluster(os.environ if environment is None else environment)
