"""Command line of the image build."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ci.cache import cache_dir
from ci.command import CommandError
from ci.debian import Archive, DebianError
from ci.lock import exclusive
from images import debianbase, lock, oci, toolchain
from images.build import REGISTRY, Builder, default_tag
from images.services import SERVICES
from images.tree import TreeError
from images.wheels import WheelError

_CHECKOUT = Path(__file__).resolve().parent.parent
_ARCHITECTURES = ("amd64", "arm64")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with exclusive(cache_dir() / "images" / "lock", reason="it is building images"):
            status: int = options.command(options)
    except (CommandError, DebianError, WheelError, TreeError, lock.LockError) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m images", description="container images")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="write image archives")
    build.add_argument("services", nargs="*", metavar="SERVICE", help=", ".join(SERVICES))
    build.add_argument("--arch", choices=_ARCHITECTURES, default="amd64")
    build.add_argument("--out", type=Path, help="folder of the archives (default: in the cache)")
    build.add_argument("--tag", help="default: the chart's appVersion")
    build.add_argument("--registry", default=REGISTRY, help="first part of the image names")
    build.set_defaults(command=_build)
    relock = commands.add_parser("lock", help="pin the newest Debian packages")
    relock.set_defaults(command=_lock)
    return parser


def _build(options: argparse.Namespace) -> int:
    unknown = [name for name in options.services if name not in SERVICES]
    if unknown:
        print(f"images: no such service: {', '.join(unknown)}", file=sys.stderr)
        return 2
    out: Path = options.out or cache_dir() / "images" / options.arch
    builder = Builder(_CHECKOUT, cache_dir(), options.arch)
    for name in options.services or SERVICES:
        started = time.monotonic()
        image = builder.image(
            SERVICES[name],
            registry=options.registry,
            tag=options.tag or default_tag(_CHECKOUT),
        )
        path = out / f"{name}.tar"
        oci.save(image, path)
        print(f"{image.reference} {path} ({time.monotonic() - started:.1f} s)", flush=True)
    return 0


def _lock(_: argparse.Namespace) -> int:
    path = Path(__file__).with_name("base.lock")
    old = lock.parse(path.read_text(), source=str(path)) if path.is_file() else {}
    new = {}
    for arch in _ARCHITECTURES:
        archive = Archive(debianbase.SUITE, arch, cache_dir())
        archive.update()
        new[f"base {arch}"] = lock.resolve(debianbase.PACKAGES, archive)
        new[f"tools {arch}"] = lock.resolve(toolchain.PACKAGES, archive)
    for section, pins in new.items():
        for line in lock.difference(section, old.get(section, {}), pins):
            print(line)
    path.write_text(lock.render(new))
    return 0


if __name__ == "__main__":
    sys.exit(main())
