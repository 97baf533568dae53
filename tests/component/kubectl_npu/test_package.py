"""``kubectl npu`` as people install it: one file, a wheel, an archive for krew."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import yaml

from ci import kubectl_plugin


def test_one_file_runs_without_the_checkout(tmp_path: Path) -> None:
    """As kubectl starts it: by name from the PATH, with an interpreter and nothing else."""
    file = tmp_path / "kubectl-npu"
    file.write_bytes(kubectl_plugin.program())
    file.chmod(0o755)
    shown = subprocess.run(
        [file, "why", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": os.defpath},
    )
    assert "NODE|[NAMESPACE/]POD|WORKLOAD" in shown.stdout
    assert kubectl_plugin.program() == file.read_bytes(), "two builds are equal"


def test_archive_for_krew_is_what_the_manifest_says() -> None:
    """Checksum, version, and every file that is copied out of it."""
    packed = kubectl_plugin.archive(kubectl_plugin.program())
    spec = yaml.safe_load(kubectl_plugin.manifest(packed, "https://example.com/a.tar.gz"))["spec"]
    (platform,) = spec["platforms"]
    assert platform["sha256"] == hashlib.sha256(packed).hexdigest()
    with tarfile.open(fileobj=BytesIO(packed)) as tar:
        modes = {member.name: member.mode for member in tar}
    assert {entry["from"] for entry in platform["files"]} == modes.keys()
    assert modes[platform["bin"]] == 0o755


def test_wheel_has_the_command_and_wants_rich(tmp_path: Path) -> None:
    """``pip install`` puts kubectl-npu where kubectl looks for it."""
    source = tmp_path / "kubectl_npu"
    shutil.copytree(kubectl_plugin.PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", tmp_path, source], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        read = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "kubectl_npu/why_pod.py" in read
    about = "".join(text for name, text in read.items() if ".dist-info/" in name)
    assert "kubectl-npu = kubectl_npu.__main__:main" in about
    assert "Requires-Dist: rich" in about
