"""Makes what a release consists of: ``python -m ci.release VERSION``.

The version is given once, here: it becomes the chart's version and appVersion, the tag of the
images and what their programs answer to ``--version``. Nothing is published: ``python -m images
push`` sends the images, ``helm push`` the chart.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import yaml

from ci import tools
from ci.chart import CHART
from ci.command import CommandError, run
from images import index, oci, provenance, sbom, sizes
from images.build import revision
from images.lock import sha256_of
from images.made import ARCHITECTURES, Made, made

CHECKOUT: Final = Path(__file__).resolve().parent.parent
#: Semantic Versioning 2.0, without build metadata, which is no part of an image's tag.
VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(?P<pre>[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*))?"
)
#: Release files carry no date, so that two builds agree: files in the chart are this old.
_EPOCH: Final = 315532800


class ReleaseError(RuntimeError):
    """What was asked for cannot be released; says what to do."""


def notes(changelog: str, version: str) -> str:
    """Return what the changelog says about ``version``.

    A release needs a section of its own; a pre-release (1.0.0-rc.1) may take what is unreleased.
    """
    sections: dict[str, list[str]] = {}
    title = ""
    for line in changelog.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ").split()[0]
        sections.setdefault(title, []).append(line)
    found = sections.get(version)
    if found is None and "-" in version:
        found = sections.get("Unreleased")
    if found is None:
        raise ReleaseError(f'CHANGELOG.md has no section "## {version}": name it after the version')
    return "\n".join(found[1:]).strip() + "\n"


def changes(text: str) -> list[dict[str, str]]:
    """Return notes as Artifact Hub's list of changes: one per bullet, all of them additions."""
    joined = re.sub(r"\n(?!\* |\n)\s*", " ", text)
    bullets = [
        line.removeprefix("* ").strip() for line in joined.splitlines() if line.startswith("* ")
    ]
    return [{"kind": "added", "description": bullet} for bullet in bullets]


def stamp(chart: Path, version: str, references: Sequence[str], text: str) -> None:
    """Write version and annotations into the ``Chart.yaml`` of an unpacked chart."""
    file = chart / "Chart.yaml"
    data = yaml.safe_load(file.read_text())
    data["version"] = data["appVersion"] = version
    listed = [{"name": _name(one), "image": one} for one in references]
    data["annotations"] |= {
        "artifacthub.io/changes": yaml.safe_dump(changes(text), sort_keys=False, width=1000),
        "artifacthub.io/images": yaml.safe_dump(listed, sort_keys=False, width=1000),
        "artifacthub.io/prerelease": str("-" in version).lower(),
    }
    file.write_text(yaml.safe_dump(data, sort_keys=False, width=1000))


def _name(reference: str) -> str:
    return reference.rpartition("/")[2].partition(":")[0]


def package(version: str, references: Sequence[str], text: str, out: Path) -> Path:
    """Package the chart as ``version``; the same content gives the same file."""
    with tempfile.TemporaryDirectory() as name:
        chart = Path(name) / CHART.name
        shutil.copytree(CHART, chart)
        stamp(chart, version, references, text)
        for path in sorted(chart.rglob("*")):
            os.utime(path, (_EPOCH, _EPOCH))
            path.chmod(0o755 if path.is_dir() else 0o644)
        run(
            [tools.helm(), "package", chart, "--destination", out],
            purpose="package the chart",
            env={**os.environ, "SOURCE_DATE_EPOCH": str(_EPOCH)},
            timeout_seconds=60,
        )
    return out / f"{CHART.name}-{version}.tgz"


def write_images(every: Sequence[Made], version: str, out: Path) -> list[index.Index]:
    """Write archives, the index of both architectures, bills of materials and lists of digests."""
    for one in every:
        name = f"{sizes.short_name(one.image)}-{version}-{one.image.arch}"
        oci.save(one.image, out / f"{name}.tar")
        bill = sbom.document(one.image, one.ingredients, revision=revision(CHECKOUT))
        (out / f"{name}.cdx.json").write_bytes(bill)
    indexes = index.by_service(one.image for one in every)
    index.save(indexes, out / f"npu-platform-images-{version}.tar")
    listed = "".join(f"{one.reference}@{one.digest}\n" for one in indexes)
    (out / "images.txt").write_text(listed)
    (out / "values-digests.yaml").write_text(index.pinned_values(indexes))
    return indexes


def checksums(files: dict[str, str]) -> str:
    """Return the checksums as ``sha256sum --check`` reads them."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))


def _hashed(out: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(out.iterdir()):
        yield path.name, sha256_of(path)


def release(version: str, out: Path) -> list[Path]:
    """Write a whole release into ``out``, which must not exist. Raises ReleaseError."""
    if not VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version such as 1.2.3 or 1.2.3-rc.1")
    if out.exists():
        raise ReleaseError(f"{out} exists: a published version never changes; remove it first")
    text = notes((CHECKOUT / "CHANGELOG.md").read_text(), version)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".release-") as name:
        work = Path(name) / "release"
        work.mkdir()
        (work / "NOTES.md").write_text(text)
        every = [one for arch in ARCHITECTURES for one in made(CHECKOUT, arch, tag=version)]
        indexes = write_images(every, version, work)
        package(version, [one.reference for one in indexes], text, work)
        locks = {
            "images/base.lock": CHECKOUT / "images" / "base.lock",
            "requirements/runtime.txt": CHECKOUT / "requirements" / "runtime.txt",
        }
        statement = provenance.statement(
            dict(_hashed(work)), version=version, revision=revision(CHECKOUT), inputs=locks
        )
        (work / "provenance.json").write_bytes(statement)
        (work / "SHA256SUMS").write_text(checksums(dict(_hashed(work))))
        work.rename(out)
    return sorted(out.iterdir())


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release, or say why not; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ci.release", description=__doc__)
    parser.add_argument("version", help="for example 1.2.3")
    parser.add_argument("--out", type=Path, help="default: dist/release-VERSION")
    options = parser.parse_args(arguments)
    out = options.out or CHECKOUT / "dist" / f"release-{options.version}"
    try:
        files = release(options.version, out)
    except (ReleaseError, CommandError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"{path.stat().st_size:>12}  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
