"""The sandbox image of the embedded cluster: one static program, no registry needed."""

import hashlib
import io
import json
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ci import gotool
from ci.command import run
from ci.lock import exclusive

IMAGE = "localhost/npu-platform/pause:1"
_SOURCE = Path(__file__).with_name("pause.go")


def program(cache: Path) -> Path:
    """Return the path of the static ``pause`` program, compiled on first use."""
    source = _SOURCE.read_bytes()
    folder = cache / "pause" / hashlib.sha256(source).hexdigest()[:16]
    path = folder / "pause"
    with exclusive(cache / "pause" / ".lock", reason="it is building the sandbox image"):
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder) as work:
                Path(work, "main.go").write_bytes(source)
                Path(work, "go.mod").write_text("module npu-platform.invalid/pause\n")
                run(
                    [
                        *(gotool.go(cache), "build", "-trimpath", "-buildvcs=false"),
                        *("-ldflags", "-s -w", "-o", "pause", "."),
                    ],
                    purpose="build the sandbox program",
                    cwd=Path(work),
                    env=gotool.environment(cache),
                )
                Path(work, "pause").rename(path)
    return path


def archive(cache: Path) -> Path:
    """Return the path of the image as a docker-archive, packed on first use."""
    binary = program(cache)
    path = binary.with_name("pause.tar")
    with exclusive(cache / "pause" / ".lock", reason="it is packing the sandbox image"):
        if not path.is_file():
            temporary = path.with_suffix(".partial")
            temporary.write_bytes(pack(binary.read_bytes()))
            temporary.replace(path)
    return path


def pack(binary: bytes, *, name: str = IMAGE) -> bytes:
    """Return a docker-archive ``name`` with ``binary`` as ``/pause``; equal bytes each time."""
    config = {"Entrypoint": ["/pause"], "User": "65535:65535"}
    return docker_archive({"pause": binary}, name=name, config=config)


def docker_archive(
    programs: Mapping[str, bytes], *, name: str, config: Mapping[str, object]
) -> bytes:
    """Return a docker-archive ``name`` with static programs in ``/``; equal bytes each time."""
    layer = _tar({path: (content, 0o755) for path, content in programs.items()})
    image = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "config.json": (image, 0o644),
            "layer.tar": (layer, 0o644),
            "manifest.json": (json.dumps(manifest).encode(), 0o644),
        }
    )


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as bundle:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            bundle.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
