"""The board's device tree, read below ``/sys/firmware/devicetree/base``.

``/proc/device-tree`` is an absolute link to it and would resolve in the container's own ``/sys``,
where the runtime masks it.
"""

from collections.abc import Callable, Iterator

from npu.errors import NpuError
from npu.host import Host

BASE = "/sys/firmware/devicetree/base"

#: Longest model that is kept; it becomes a label.
_MODEL_LENGTH = 128

#: Buses below the root whose children are devices with addresses too.
_BUSES = ("soc", "bus", "axi")


def strings(content: bytes) -> tuple[str, ...]:
    """Split a property into its NUL-terminated strings."""
    return tuple(part.decode("utf-8", "replace") for part in content.split(b"\0") if part)


def board_model(host: Host) -> str | None:
    """Return the board's model, e.g. ``Radxa ROCK 5B``; None where it cannot be read."""
    try:
        text = host.read_text(f"{BASE}/model")
    except NpuError:
        return None
    model = text.split("\0", maxsplit=1)[0].strip()
    return model[:_MODEL_LENGTH] if model and model.isprintable() else None


def board_compatible(host: Host) -> tuple[str, ...]:
    """Return the board's compatible strings (board first, SoC last); empty where unreadable."""
    try:
        return strings(host.read(f"{BASE}/compatible"))
    except NpuError:
        return ()


def nodes(host: Host, accepts: Callable[[str], bool]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield full name (``/npu@fdab0000``) and compatible strings of the nodes that ``accepts``."""
    for name in _addressed(host):
        try:
            compatible = strings(host.read(f"{BASE}{name}/compatible"))
        except NpuError:
            continue
        if any(map(accepts, compatible)):
            yield name, compatible


def is_disabled(host: Host, node: str) -> bool:
    """Tell whether ``status`` of a node says so; a node without ``status`` is enabled."""
    try:
        status = strings(host.read(f"{BASE}{node}/status"))
    except NpuError:
        return False
    return bool(status) and status[0] not in ("okay", "ok")


def _addressed(host: Host) -> Iterator[str]:
    try:
        for name in host.names(BASE):
            if "@" in name:
                yield f"/{name}"
            if name.startswith(_BUSES):
                yield from (f"/{name}/{child}" for child in host.names(f"{BASE}/{name}"))
    except NpuError:
        return
