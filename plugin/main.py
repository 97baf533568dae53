"""Command line: the daemon, or with ``doctor`` as first argument its doctor."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from daemon import config as files
from daemon import logs
from daemon.options import EXIT_CONFIGURATION
from daemon.version import REVISION, VERSION
from plugin import options as command_line
from plugin.config import PluginConfig

log = logging.getLogger("plugin")

_SWITCH_SECONDS = 0.0005


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until stopped; return the exit code (0 stopped, 1 failed, 2 bad configuration).

    With ``doctor`` as first argument, check the NPU and return (see :mod:`plugin.doctor`).
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] == "doctor":
        from plugin.doctor.command import main as doctor

        # Notes of gRPC do not belong into a report.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return doctor(arguments[1:])
    options, unknown = command_line.parse(arguments)
    try:
        config = (
            files.load(Path(options.config), PluginConfig) if options.config else PluginConfig()
        )
    except files.ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    if config.mode == "dra" and not options.node_name:
        sys.stderr.write("--node-name is needed with mode: dra (NPU_PLUGIN_NODE_NAME)\n")
        return EXIT_CONFIGURATION
    if options.check:
        return 0
    logs.configure(options.log_level, options.log_format)
    for name in unknown:
        log.warning("Unknown environment variable, ignored", extra=logs.fields(name=name))
    log.info(
        "Starting the device plugin",
        extra=logs.fields(
            version=VERSION,
            revision=REVISION,
            root=options.root,
            node_prefix=options.node_prefix,
            kubelet_dir=options.kubelet_dir,
            config=msgspec.json.encode(config).decode(),
        ),
    )
    # gRPC writes to stderr, between the records of the log; what fails is an exception, too.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from plugin.service import build

    supervisor = build(options, config)
    # Pods wait for Allocate: a thread that reads the board gives way after half a millisecond, not
    # five, and the garbage collector does not walk through modules.
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    return supervisor.run()
