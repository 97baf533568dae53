"""The table of services against what the code imports and what the lock pins."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from images import wheels
from images.build import own_tree, process_of
from images.packages import MODULES
from images.services import LEFT_OUT, PYTHON_LAYERS, SERVICES, Service

CHECKOUT = Path(__file__).resolve().parents[3]
OWN = {"daemon", "exporter", "inference", "kubelet", "npu", "plugin", "simulator", "thermal"}
#: Import names of distributions that are not their own names.
IMPORT_NAMES = {
    "google": "protobuf",
    "grpc": "grpcio",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
    "typing_extensions": "typing-extensions",
}
#: Development only: regenerates code that is committed.
GENERATORS = ("/kubelet/generate.py",)

services = pytest.mark.parametrize("service", SERVICES.values(), ids=lambda one: one.name)


def run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what runs of a tree: not the bodies of ``if TYPE_CHECKING``."""
    yield node
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    for child in ast.iter_child_nodes(node):
        yield from run_time(child)


def imported(service: Service) -> set[str]:
    found: set[str] = set()
    for path, file in own_tree(CHECKOUT, service).items():
        if not path.endswith(".py") or path.endswith(GENERATORS):
            continue
        for node in run_time(ast.parse(file.data)):
            if isinstance(node, ast.Import):
                found.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names


def test_every_pinned_package_is_accounted_for() -> None:
    """A new dependency must be put into a layer, or left out with a reason."""
    pinned = set(wheels.parse((CHECKOUT / "requirements" / "runtime.txt").read_text()))
    shipped = [name for names in PYTHON_LAYERS.values() for name in names]

    assert len(shipped) == len(set(shipped))
    assert {*shipped, *LEFT_OUT} == pinned
    assert not {*shipped} & {*LEFT_OUT}


@services
def test_images_hold_what_their_code_imports(service: Service) -> None:
    """Own packages and libraries that the source names are in the image, and no others."""
    needed = imported(service) - {service.module}
    shipped = {name for layer in service.python_layers for name in PYTHON_LAYERS[layer]}

    assert needed & OWN <= set(service.packages)
    assert {IMPORT_NAMES.get(name, name) for name in needed - OWN} <= shipped


@services
def test_the_started_module_is_in_the_image(service: Service) -> None:
    """``python -m`` finds the entry point in the service's own layer."""
    tree = own_tree(CHECKOUT, service)

    candidates = {f"{MODULES}/{service.module}.py", f"{MODULES}/{service.module}/__main__.py"}
    assert candidates & tree.keys()
    assert process_of(service, "r", "1").entrypoint[-2:] == ("-m", service.module)


@services
def test_own_layers_hold_no_waste(service: Service) -> None:
    """Caches and sources of generated code stay out."""
    tree = own_tree(CHECKOUT, service)

    assert not [path for path in tree if "__pycache__" in path or path.endswith((".pyc", ".proto"))]


def test_hidden_and_backup_files_stay_out(tmp_path: Path) -> None:
    """What an editor leaves in a package does not reach the image."""
    (tmp_path / "LICENSE").write_text("terms")
    for name in ("__init__.py", "page.html", ".page.html.swp", "old.py~", "x.pyi"):
        (tmp_path / "npu" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "npu" / name).write_text("")
    service = Service(name="s", module="npu", summary="", python_layers=(), packages=("npu",))

    assert {path.rpartition("/")[2] for path in own_tree(tmp_path, service)} == {
        "LICENSE",
        "__init__.py",
        "page.html",
    }


@services
def test_processes_are_unprivileged_and_isolated(service: Service) -> None:
    """A numeric user, Python in isolated mode by its full path, the revision at hand."""
    process = process_of(service, "abc", "1.2.3")

    assert process.user == "65532:65532"
    assert process.entrypoint[0] == "/usr/bin/python3.13"
    assert "-I" in process.entrypoint
    assert process.environment["NPU_PLATFORM_REVISION"] == "abc"
