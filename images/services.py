"""What goes into which image: a table, read top to bottom as layers."""

from dataclasses import dataclass

#: Python packages by layer. A layer used by several services is stored once on a node.
PYTHON_LAYERS: dict[str, tuple[str, ...]] = {
    "common": ("prometheus-client", "msgspec", "pyyaml"),
    "kubelet": ("protobuf", "h2", "hpack", "hyperframe"),
    "grpc": ("grpcio", "typing-extensions"),
    "pages": ("jinja2", "markupsafe"),
    "apiclient": (
        *("kubernetes", "certifi", "charset-normalizer", "durationpy", "idna", "oauthlib"),
        *("python-dateutil", "requests", "requests-oauthlib", "six", "urllib3"),
        "websocket-client",
    ),
}

#: Locked packages that no image carries, with the reason.
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        (
            *("aiohappyeyeballs", "aiohttp", "aiosignal", "attrs", "frozenlist", "multidict"),
            *("propcache", "yarl"),
        ),
        "only the asynchronous client of kubernetes imports it, and that is pruned",
    ),
    "tzdata": "dateutil falls back on it for named zones; the platform speaks UTC only",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One image: ``module`` is started, ``packages`` are the project's own it imports."""

    name: str
    module: str
    summary: str
    python_layers: tuple[str, ...]
    packages: tuple[str, ...]


SERVICES: dict[str, Service] = {
    service.name: service
    for service in (
        Service(
            name="plugin",
            module="plugin",
            summary="device plugin: hands NPUs of a node to the kubelet",
            python_layers=("common", "kubelet", "grpc"),
            packages=("daemon", "kubelet", "npu", "plugin"),
        ),
        Service(
            name="exporter",
            module="exporter",
            summary="Prometheus exporter: load, clock and temperature of NPUs",
            python_layers=("common", "kubelet", "pages"),
            packages=("daemon", "exporter", "kubelet", "npu"),
        ),
        Service(
            name="guard",
            module="thermal",
            summary="thermal guard: keeps hot boards from getting more work",
            python_layers=("common", "pages", "apiclient"),
            packages=("daemon", "npu", "thermal"),
        ),
        Service(
            name="simulator",
            module="simulator",
            summary="board simulator: an NPU board in a folder, for demos and tests",
            python_layers=("common", "kubelet"),
            packages=("daemon", "kubelet", "npu", "simulator"),
        ),
        Service(
            name="workload",
            module="sample",
            summary="sample workload: opens the NPU it was granted and says what it sees",
            python_layers=(),
            packages=(),
        ),
        Service(
            name="inference",
            module="inference",
            summary="sample inference service: a model on an NPU behind HTTP, with metrics",
            python_layers=("common",),
            packages=("daemon", "inference", "npu"),
        ),
    )
}
