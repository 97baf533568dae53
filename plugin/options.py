"""Command line of the plugin."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from daemon.options import Options, absolute_path
from kubelet.paths import (
    DEFAULT_KUBELET_DIR,
    check_socket_path,
    device_plugins_dir,
    new_socket_name,
)


def parse(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """Return the options, and variables that look like options and are none.

    A mistake ends the process with code 2.
    """
    options = Options(
        "plugin", prefix="NPU_PLUGIN", description="Offers the board's NPUs to the kubelet."
    )
    options.add("root", Path("/"), "where the board's file tree is mounted", kind=absolute_path)
    options.add(
        "proc",
        "",
        "where the board's /proc is, if not below the root; a container's own tells the same of"
        " drivers",
    )
    options.add("node-prefix", "", "what kubelet and runtime see before the tree's paths")
    options.add(
        "kubelet-dir",
        Path(DEFAULT_KUBELET_DIR),
        "the directory that holds device-plugins and pod-resources",
        kind=absolute_path,
    )
    options.add(
        "cdi-dir",
        Path("/var/run/cdi"),
        "where CDI files for the container runtime belong (deviceInjection: cdi)",
        kind=absolute_path,
    )
    options.add(
        "state-dir",
        Path("/run/npu-platform"),
        "where clock limits are noted before they are changed (heat.clampFrequency)",
        kind=absolute_path,
    )
    options.add("node-name", "", "name of this node, as Kubernetes knows it (mode: dra)")
    options.add("config", "", "configuration file; empty: the defaults")
    options.add_flag("check", "check options and configuration, then exit")
    options.add_common()
    parsed = options.parse(arguments)
    try:
        check_socket_path(device_plugins_dir(parsed.kubelet_dir) / new_socket_name())
    except ValueError as error:
        options.parser.error(f"argument --kubelet-dir: {error}")
    if parsed.node_prefix and not parsed.node_prefix.startswith("/"):
        options.parser.error(f"argument --node-prefix: {parsed.node_prefix!r} is not absolute")
    return parsed, options.unknown_variables()
