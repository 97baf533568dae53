"""The command line of the doctor."""

import argparse
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from daemon import config as files
from daemon.options import EXIT_CONFIGURATION
from kubelet.paths import (
    DEFAULT_KUBELET_DIR,
    device_plugins_dir,
    driver_registration_socket,
    plugins_registry_dir,
    pod_resources_socket,
)
from kubelet.podresources import PodDevices, PodResourcesClient, PodResourcesError
from npu import names
from npu.host import Host
from npu.ids import device_of
from npu.scan import scan
from npu.watchdog import WatchedReader
from plugin.config import PluginConfig
from plugin.doctor import ascend, board, container, kubelet, node, wedge
from plugin.doctor.finding import Finding, as_json, as_text, exit_code, fail, ok, warn
from plugin.dra.pools import driver_of

T = TypeVar("T")

_POD_RESOURCES_SECONDS = 2.0


def main(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Check, print, and return 0, 1 where something failed, 2 for a mistake in the call."""
    environment = os.environ if environment is None else environment
    options = _parser().parse_args(arguments)
    try:
        config = (
            files.load(Path(options.config), PluginConfig) if options.config else PluginConfig()
        )
    except files.ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_CONFIGURATION
    kubelet_dir = Path(options.kubelet_dir)
    visible = device_plugins_dir(kubelet_dir).is_dir() or plugins_registry_dir(kubelet_dir).is_dir()
    on_node = options.on == "node" or (options.on == "auto" and visible)
    host = Host(options.root, reader=WatchedReader())
    findings = list(
        guarded(
            node_findings(host, kubelet_dir, config)
            if on_node
            else container_findings(host, environment)
        )
    )
    print(as_json(findings) if options.json else as_text(findings))
    return exit_code(findings)


def container_findings(host: Host, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what this container was given."""
    root = Path(host.root or "/")
    inventory = scan(host)
    yield container.granted(environment)
    yield from board.driver(inventory, on_node=False)
    yield from container.nodes(environment, root)
    modes = frozenset(npu.mode for npu in inventory.npus)
    yield from board.misc_node(host, modes)
    folder = environment.get(names.ENV_LIBRARY_DIR)
    npu = next(iter(inventory.npus), None)
    yield from board.libraries(host, npu, search=(folder,) if folder else ())
    if folder and not any(host.exists(f"{folder}/{name}") for name in host.names(folder)):
        yield warn(
            "library",
            f"{names.ENV_LIBRARY_DIR}={folder}, and nothing is in it",
            "the node's library went away after this container was given it: delete the Pod",
        )
    yield board.device_tree(host)
    yield container.descriptors(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def node_findings(host: Host, kubelet_dir: Path, config: PluginConfig) -> Iterator[Finding]:
    """Look at a node's files and at its kubelet."""
    inventory = scan(host, library_paths=config.library.search_paths)
    yield from board.driver(inventory, on_node=True)
    yield from node.nodes(host, inventory)
    yield from ascend.findings(host, inventory)
    yield from board.misc_node(host, frozenset(npu.mode for npu in inventory.npus))
    rockchip = [npu for npu in inventory.npus if npu.vendor == "rockchip"]
    if rockchip or not inventory.npus:
        npu = next(iter(rockchip), None)
        yield from board.libraries(host, npu, search=config.library.search_paths)
    yield node.control_groups(host, inventory.npus)
    yield node.sharing(config.sharing)
    client = PodResourcesClient(pod_resources_socket(kubelet_dir))
    entries, problem = _asked(client.list)
    if config.mode == "dra" or _hands_out_claims(kubelet_dir):
        yield from kubelet.drivers(
            kubelet_dir, {d for npu in inventory.npus if (d := driver_of(npu))}
        )
        ours = [e for e in entries or () if e.dynamic and e.resource in names.ALL_DRA_DRIVERS]
        if inventory.npus:
            yield ok("offer", "by claims: see `kubectl get resourceslices`; the guard makes them")
    else:
        yield from kubelet.directory(kubelet_dir, config.resources)
        allocatable, _ = _asked(client.allocatable)
        ours = [e for e in entries or () if not e.dynamic and e.resource in config.resources]
        if inventory.npus:
            yield from node.offer(allocatable, _used(ours), config.resources)
    holders = _holders(ours)
    listed = ", ".join(sorted(holders)) or "no container holds an NPU"
    yield ok("holders", listed if problem is None else f"not known: {problem}")
    for npu in inventory.npus:
        known = None if entries is None else wedge.holder_names(holders, npu.id)
        yield wedge.load(host, npu, known)
    if inventory.npus:
        yield wedge.users(host, inventory.npus, None if entries is None else set(holders))
    yield wedge.kernel_log(wedge.read_kernel_log)


def _hands_out_claims(kubelet_dir: Path) -> bool:
    """Tell whether a driver of ours was here, or a Pod of its kind sees no other directory."""
    return any(
        driver_registration_socket(kubelet_dir, name).exists() for name in names.ALL_DRA_DRIVERS
    ) or (
        plugins_registry_dir(kubelet_dir).is_dir() and not device_plugins_dir(kubelet_dir).is_dir()
    )


def guarded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield findings; a check that breaks is one more, and what came before it is kept."""
    try:
        yield from findings
    except Exception as error:  # noqa: BLE001 - whatever a broken board makes of a check
        yield fail("doctor", f"a check broke: {error!r}", "report it with the lines above")


def _asked(question: Callable[[float], T]) -> tuple[T | None, str | None]:
    """Return the kubelet's answer, or why there is none."""
    try:
        return question(_POD_RESOURCES_SECONDS), None
    except PodResourcesError as error:
        return None, str(error)


def _used(entries: Iterable[PodDevices]) -> dict[str, set[str]]:
    used: dict[str, set[str]] = {}
    for entry in entries:
        used.setdefault(entry.resource, set()).update(entry.device_ids)
    return used


def _holders(entries: Iterable[PodDevices]) -> dict[str, set[str]]:
    """Return the devices of each holder."""
    held: dict[str, set[str]] = {}
    for entry in entries:
        name = f"{entry.namespace}/{entry.pod}/{entry.container}"
        held.setdefault(name, set()).update(_devices(entry.device_ids))
    return held


def _devices(identifiers: Iterable[str]) -> Iterator[str]:
    for identifier in identifiers:
        try:
            yield device_of(identifier)
        except ValueError:
            continue


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m plugin doctor",
        description="Finds out why an NPU cannot be used. In a container that asked for an NPU it "
        "opens the device; on a node it looks at driver, kubelet and holders.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--on",
        choices=["auto", "container", "node"],
        default="auto",
        help="what to look at; auto: the node where the kubelet's directory is visible",
    )
    parser.add_argument("--root", default="/", help="where the file tree to look at is mounted")
    parser.add_argument(
        "--kubelet-dir", default=DEFAULT_KUBELET_DIR, help="the kubelet's directory"
    )
    parser.add_argument("--config", default="", help="the plugin's configuration file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser
