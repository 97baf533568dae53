"""Check what a build alone cannot show: that everything in an image works there."""

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from images.layer import Layer
from images.oci import Image
from images.packages import MODULES
from images.rootfs import Root, laid_out
from images.services import Service

_UID = 65532
_PYTHON = "/usr/bin/python3.13"
_PROBE = Path(__file__).with_name("probe.py")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "busybox", "zsh", "ksh"})
_IMPORT_FOLDERS = ("usr/lib/python3.13/lib-dynload", "usr/lib/python3.13", MODULES)
_MODULE_SUFFIXES = (".pyc", ".py", ".so")
_SERVING = "serving HTTP"
# Stopped in order, or at once by the second signal (128 + SIGTERM).
_STOPPED = (0, 143)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a service starts where there is no cluster; ``ready`` is said when it is up."""

    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    ready: str = _SERVING


_ANY_PORT = ("--bind", "127.0.0.1:0")
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "none", "user": {}}],
    "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
    "current-context": "none",
}
_STARTS: dict[str, Start] = {
    "plugin": Start(arguments=(*_ANY_PORT, "--kubelet-dir", "/tmp")),  # noqa: S108 - in the image
    "exporter": Start(arguments=_ANY_PORT),
    "guard": Start(
        arguments=(*_ANY_PORT, "--kubeconfig", "/etc/kubeconfig"),
        files={
            "etc/npu-platform/guard.yaml": "{}",
            "etc/kubeconfig": json.dumps(_KUBECONFIG),
        },
    ),
    "simulator": Start(
        arguments=(*_ANY_PORT, "--board-dir", "/tmp/board", "--real-root", "/tmp")  # noqa: S108
    ),
    "workload": Start(ready='"event": "result"'),
    "inference": Start(arguments=(*_ANY_PORT, "--backend", "simulated", "--drain", "0.1")),
}


class VerifyError(AssertionError):
    """An image does not hold what it promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the checks of one image saw."""

    modules: int
    version: str
    stopped: int

    def __str__(self) -> str:
        """Return the findings for people."""
        version = self.version or "no --version"
        return f"{self.modules} modules import; {version}; SIGTERM ends it with {self.stopped}"


def plan(images: Sequence[Image]) -> list[tuple[str, ...]]:
    """Return for each image the modules to import in it.

    What lies in a layer that an earlier image shares has been imported there.
    """
    seen: set[str] = set()
    plans = []
    for image in images:
        fresh = [layer for layer in image.layers if layer.diff_id not in seen]
        seen.update(layer.diff_id for layer in image.layers)
        plans.append(modules(entry.name for layer in fresh for entry in entries(layer)))
    return plans


def modules(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the Python modules among the files of an image."""
    found: dict[str, None] = {}
    for path in sorted(paths):
        for folder in _IMPORT_FOLDERS:
            if path.startswith(f"{folder}/") and path.endswith(_MODULE_SUFFIXES):
                words = path.removeprefix(f"{folder}/").split("/")
                words[-1] = words[-1].partition(".")[0]
                if all(word.isidentifier() for word in words) and words[-1] != "__main__":
                    found[".".join(words[:-1] if words[-1] == "__init__" else words)] = None
                break
    return tuple(found)


def check(image: Image, service: Service, to_import: Sequence[str], cache: Path) -> Findings:
    """Run every check on ``image``; raises ``VerifyError`` with what is wrong."""
    headers = [entry for layer in image.layers for entry in entries(layer)]
    for complaint in (*file_complaints(headers), *paper_complaints(headers)):
        raise VerifyError(complaint)
    start = _STARTS[service.name]
    files = {**start.files, "modules.json": json.dumps(to_import)}
    with laid_out(image, cache, files) as root:
        _check_modules(root)
        return Findings(
            modules=len(to_import),
            version=_check_version(root) if service.packages else _check_help(root),
            stopped=_check_signals(root, start),
        )


def entries(layer: Layer) -> Iterator[tarfile.TarInfo]:
    """Yield the headers of a layer."""
    with tarfile.open(layer.path) as archive:
        yield from archive


def file_complaints(headers: Iterable[tarfile.TarInfo]) -> Iterator[str]:
    """Yield what must not be in an image: set-id bits, devices, shells."""
    for entry in headers:
        if entry.mode & 0o6000:
            yield f"/{entry.name} has a set-id bit"
        if not (entry.isdir() or entry.issym() or entry.isreg()):
            yield f"/{entry.name} is neither file, link nor folder"
        if entry.name.rpartition("/")[2] in _SHELLS and not entry.isdir():
            yield f"/{entry.name} is a shell"


def paper_complaints(headers: Iterable[tarfile.TarInfo]) -> Iterator[str]:
    """Yield components without terms or metadata."""
    links = {entry.name for entry in headers if entry.issym()}
    names = {entry.name for entry in headers}
    for name in sorted(names):
        folder, _, last = name.rpartition("/")
        if folder == "var/lib/dpkg/status.d":
            terms = f"usr/share/doc/{last}"
            # The build refuses links that lead nowhere.
            if terms not in links and f"{terms}/copyright" not in names:
                yield f"no terms of Debian package {last}"
        elif name.endswith(".dist-info"):
            if f"{name}/METADATA" not in names:
                yield f"no metadata in /{name}"
            if not any(_is_licence(one) for one in names if one.startswith(f"{name}/")):
                yield f"no licence in /{name}"


def _is_licence(name: str) -> bool:
    last = name.rpartition("/")[2].upper()
    return "/licenses/" in name or last.startswith(("LICENSE", "LICENCE", "COPYING", "NOTICE"))


def _check_modules(root: Root) -> None:
    done = root.run(_PYTHON, "-I", "-B", "-c", _PROBE.read_text())
    _expect(done.returncode == 0, f"the probe failed: {done.stderr.strip()}")
    report = json.loads(done.stdout.splitlines()[-1])
    _expect(not report["failed"], f"modules that cannot be imported: {report['failed']}")
    _expect(report["uid"] == _UID, f"uid {report['uid']}")
    _expect(report["pid"] == 1, f"pid {report['pid']}")
    _expect(report["utf8"], "text files are not UTF-8 by default")
    _expect(report["authorities"] > 0, "TLS knows no certificate authority")
    _expect(report["protobuf"] in (None, "upb"), f"protobuf core: {report['protobuf']}")
    _expect(report["libyaml"] in (None, True), "PyYAML runs without libyaml")


def _check_help(root: Root) -> str:
    done = root.run(*root.entrypoint, "--help")
    _expect(done.returncode == 0, f"--help ended with {done.returncode}: {done.stderr}")
    _expect("usage:" in done.stdout, f"--help said {done.stdout!r}")
    return ""


def _check_version(root: Root) -> str:
    if not root.emulator:  # every start under emulation costs seconds and shows the same text
        _check_help(root)
    done = root.run(*root.entrypoint, "--version")
    _expect(done.returncode == 0, f"--version ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def _check_signals(root: Root, start: Start) -> int:
    program = (*root.entrypoint, *start.arguments)
    status, output = root.terminate_twice(*program, ready=start.ready)
    _expect(status in _STOPPED, f"SIGTERM ended it with {status}: {output}")
    _expect("Traceback" not in output, f"a traceback on the way: {output}")
    return status


def _expect(holds: bool, complaint: str) -> None:  # noqa: FBT001 - reads as a sentence
    if not holds:
        raise VerifyError(complaint)
