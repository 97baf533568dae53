"""Make images from the lock, the Python requirements and the checkout."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

from ci.debian import Archive, host_architecture
from images import debianbase, oci, pruning, toolchain, wheels
from images.layer import Layer, Store, digest_of, key_of
from images.lock import Pinned, sha256_of
from images.packages import MODULES, placed, wheel_tree
from images.services import PYTHON_LAYERS, Service
from images.tree import File, Tree, TreeError, dangling, merge, without_empty_folders

#: Where the chart looks for images by default.
REGISTRY = "localhost/npu-platform"

_HERE = Path(__file__).resolve().parent
#: Modules whose change makes finished layers worthless.
_RECIPES = (
    *("build", "compile_sources", "debianbase", "layer", "packages", "pruning", "toolchain"),
    *("tree", "wheels"),
)
_PYTHON = ("/usr/bin/python3.13", "-I", "-u", "-B", "-X", "faulthandler")
# OpenSSL and glibc need nothing from the environment; a PATH keeps `kubectl exec` usable.
_PATH = "/usr/bin"
#: Generated servers and stubs of the gRPC library; clients of ours do without it.
_NEEDS_GRPC = "_pb2_grpc.py"
# glibc gives each busy thread a heap of its own; daemons of a dozen threads that mostly sleep need
# one, which is 0.7 MiB less.
_HEAPS = "1"


class Builder:
    """Builds for one architecture; everything made is kept below ``cache``.

    ``layers`` is where finished layers are, by default in the cache too.
    """

    def __init__(
        self, checkout: Path, cache: Path, arch: str, *, layers: Path | None = None
    ) -> None:
        self._checkout = checkout
        self._cache = cache / "images"
        self._arch = arch
        self._host = host_architecture()
        self._store = Store(layers or self._cache / "layers")
        self._requirements = wheels.parse((checkout / "requirements" / "runtime.txt").read_text())
        self.lock = Pinned(
            _HERE / "base.lock",
            self._cache,
            packages=lambda section: Archive(debianbase.SUITE, section.split()[1], cache),
        )
        self._recipe = {name: sha256_of(_HERE / f"{name}.py") for name in _RECIPES}

    def image(self, service: Service, *, registry: str, tag: str) -> oci.Image:
        """Return the image of ``service``, built as far as it is not at hand."""
        layers = [self.base(), *(self.libraries(name) for name in service.python_layers)]
        layers.append(self.own_code(service))
        return oci.compose(
            f"{registry}/{service.name}:{tag}",
            self._arch,
            layers,
            process_of(service, revision(self._checkout), tag),
            self._labels(service, tag),
        )

    def base(self) -> Layer:
        """Return the layer of the Debian base."""
        rules = _HERE / "prune" / "base.txt"
        pins = self.lock.pins(self._base_section)
        key = self._key("base", {name: pin.sha256 for name, pin in pins.items()}, sha256_of(rules))

        def make() -> Tree:
            _say(f"base: {len(pins)} packages of Debian {debianbase.SUITE} ({self._arch})")
            tree = debianbase.unpacked(self.lock.fetch(self._base_section), self._arch)
            kept, used = pruning.prune(tree, pruning.load(rules))
            _report_unused(rules, used)
            tools = self.tools()
            finished = tools.compile_sources(tools.strip(kept, self._arch))
            return _checked(without_empty_folders(finished, debianbase.EMPTY_FOLDERS))

        return self._store.provide("base", key, make)

    def libraries(self, layer: str) -> Layer:
        """Return a layer of Python packages."""
        rules = _HERE / "prune" / "wheels.txt"
        wanted = [self._requirements[name] for name in PYTHON_LAYERS[layer]]
        key = self._key(layer, [one.line() for one in wanted], sha256_of(rules))

        def make() -> Tree:
            _say(f"{layer}: {', '.join(one.name for one in wanted)} ({self._arch})")
            found = wheels.provide(wanted, self._arch, self._cache / "wheels")
            tree = merge(wheel_tree(path) for path in found)
            kept, _ = pruning.prune(tree, pruning.load(rules))
            tools = self.tools()
            return _checked(tools.compile_sources(tools.strip(placed(kept), self._arch)))

        return self._store.provide(layer, key, make)

    def wheels_of(self, service: Service) -> list[Path]:
        """Return the wheels that an image of ``service`` contains."""
        names = [name for layer in service.python_layers for name in PYTHON_LAYERS[layer]]
        wanted = [self._requirements[name] for name in names]
        return wheels.provide(wanted, self._arch, self._cache / "wheels")

    def own_code(self, service: Service) -> Layer:
        """Return the layer of the project's own packages that ``service`` imports."""
        tree = own_tree(self._checkout, service)
        contents = {path: digest_of(node.data) for path, node in tree.items()}
        key = self._key(service.name, contents)

        def make() -> Tree:
            _say(f"{service.name}: {', '.join(service.packages) or service.module}")
            return self.tools().compile_sources(tree, keep=_examples(service))

        return self._store.provide(service.name, key, make)

    @property
    def _base_section(self) -> str:
        return f"base {self._arch}"

    @property
    def _tools_section(self) -> str:
        return f"tools {self._host}"

    def _key(self, *parts: object) -> str:
        tools = {name: pin.sha256 for name, pin in self.lock.pins(self._tools_section).items()}
        return key_of(self._arch, self._recipe, tools, *parts)

    def tools(self) -> toolchain.Toolchain:
        """Return Python 3.13 and strip, unpacked."""
        pins = self.lock.pins(self._tools_section)
        debs = self.lock.fetch(self._tools_section).values()
        pins = self.lock.pins(self._tools_section)
        name = key_of({name: pin.sha256 for name, pin in pins.items()})
        return toolchain.Toolchain.unpacked(debs, self._cache / "tools" / name, self._host)

    def _labels(self, service: Service, tag: str) -> dict[str, str]:
        packages = [(name, pin.version) for name, pin in self.lock.pins(self._base_section).items()]
        python = [
            (name, self._requirements[name].version)
            for layer in service.python_layers
            for name in PYTHON_LAYERS[layer]
        ]
        return {
            "org.opencontainers.image.title": f"npu-platform {service.name}",
            "org.opencontainers.image.description": service.summary,
            "org.opencontainers.image.version": tag,
            "org.opencontainers.image.revision": revision(self._checkout),
            "org.opencontainers.image.licenses": "Apache-2.0",
            "npu-platform.io/debian-packages": debianbase.described(packages),
            "npu-platform.io/debian-lock-deviations": "; ".join(
                self.lock.deviation(self._base_section)
            ),
            "npu-platform.io/python-packages": debianbase.described(python),
        }


def process_of(service: Service, at_revision: str, version: str) -> oci.Process:
    """Return how containers of ``service`` start: Python itself is PID 1, without a shell."""
    return oci.Process(
        entrypoint=(*_PYTHON, "-m", service.module),
        environment={
            "PATH": _PATH,
            "MALLOC_ARENA_MAX": _HEAPS,
            "NPU_PLATFORM_REVISION": at_revision,
            "NPU_PLATFORM_VERSION": version,
        },
        user="65532:65532",
        ports=("8080/tcp",) if service.packages else (),
    )


def own_tree(checkout: Path, service: Service) -> dict[str, File]:
    """Return the project's own files of ``service`` where the image's Python finds them."""
    tree: dict[str, File] = {}
    for package in service.packages:
        for path in sorted((checkout / package).rglob("*")):
            if path.is_file() and _ships(path.relative_to(checkout), service):
                tree[f"{MODULES}/{path.relative_to(checkout)}"] = File(path.read_bytes())
    sample = checkout / "images" / service.name / f"{service.module}.py"
    if sample.is_file():
        tree[f"{MODULES}/{sample.name}"] = File(sample.read_bytes())
    tree[f"usr/share/doc/npu-platform-{service.name}/LICENSE"] = File(
        (checkout / "LICENSE").read_bytes()
    )
    return tree


def _ships(path: Path, service: Service) -> bool:
    hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    if path.name.endswith(_NEEDS_GRPC) and "grpc" not in service.python_layers:
        return False
    return not hidden and path.suffix not in (".pyc", ".proto", ".pyi") and path.name[-1] != "~"


def _examples(service: Service) -> list[str]:
    """Return sources that stay readable in the image: those meant to be read there."""
    return [] if service.packages else [f"{MODULES}/{service.module}.py"]


def _checked(tree: Tree) -> Tree:
    lost = dangling(tree)
    if lost:
        message = f"links that lead nowhere: {', '.join(lost)}"
        raise TreeError(message)
    return tree


def _report_unused(rules: Path, used: frozenset[int]) -> None:
    for rule in pruning.load(rules):
        if rule.line not in used:
            _say(f"{rules.name}:{rule.line}: matches nothing: {rule.pattern}")


def revision(checkout: Path) -> str:
    """Return the commit of the checkout, marked when it has changes; "unknown" without git."""
    given = os.environ.get("NPU_PLATFORM_REVISION")
    if given:
        return given
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40"]
    done = subprocess.run([*words, "--exclude=*"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def default_tag(checkout: Path) -> str:
    """Return the tag the chart asks for by default: its ``appVersion``."""
    chart = yaml.safe_load((checkout / "charts" / "npu-platform" / "Chart.yaml").read_text())
    return str(chart["appVersion"])


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
