"""Builds ``kubectl npu``: ``python -m ci.kubectl_plugin --out FOLDER``.

Writes ``kubectl-npu``, one executable file for the PATH; ``kubectl-npu.tar.gz`` with it, and
``npu.yaml``, the manifest by which krew installs that archive. Two builds of one tree are equal.
"""

import argparse
import gzip
import hashlib
import io
import tarfile
import tomllib
import zipfile
from pathlib import Path
from string import Template
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "kubectl_npu"
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_MAIN: Final = "import sys\n\nfrom kubectl_npu.__main__ import main\n\nsys.exit(main())\n"


def program() -> bytes:
    """Return the executable: a zip archive of the package behind a line for the interpreter."""
    files = {f"kubectl_npu/{path.name}": path.read_bytes() for path in PACKAGE.glob("*.py")}
    files["__main__.py"] = _MAIN.encode()
    buffer = io.BytesIO()
    buffer.write(_SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def archive(executable: bytes) -> bytes:
    """Return what krew downloads: the executable and the license."""
    buffer = io.BytesIO()
    files = {
        "kubectl-npu": (executable, 0o755),
        "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
    }
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def version() -> str:
    """Return the version of the package in the form that krew demands."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    return str(project["version"]).replace(".dev", "-dev.")


def manifest(packed: bytes, uri: str) -> str:
    """Return krew's manifest for an archive."""
    text = Template((PACKAGE / "krew.yaml").read_text())
    digest = hashlib.sha256(packed).hexdigest()
    return text.substitute(version=version(), uri=uri, sha256=digest)


def main() -> None:
    """Write all three."""
    parser = argparse.ArgumentParser(prog="python -m ci.kubectl_plugin", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--uri",
        default="https://downloads.example.com/kubectl-npu.tar.gz",
        help="where the archive will be downloaded from [%(default)s]",
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    executable = program()
    packed = archive(executable)
    file = options.out / "kubectl-npu"
    file.write_bytes(executable)
    file.chmod(0o755)
    (options.out / "kubectl-npu.tar.gz").write_bytes(packed)
    (options.out / "npu.yaml").write_text(manifest(packed, options.uri))
    print(f"{file} ({len(executable) / 1000:.0f} kB), kubectl-npu.tar.gz and npu.yaml for krew")


if __name__ == "__main__":
    main()
