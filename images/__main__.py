"""Command line of the image build."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from ci.cache import cache_dir
from ci.command import CommandError
from ci.debian import Archive, DebianError
from ci.lock import exclusive
from images import debianbase, index, lock, oci, registry, sizes, toolchain, verify
from images.build import REGISTRY, Builder, default_tag
from images.made import ARCHITECTURES, made
from images.rootfs import StartError
from images.services import SERVICES
from images.tree import TreeError
from images.wheels import WheelError


class UnknownServiceError(ValueError):
    """The command line names a service that does not exist."""


_CHECKOUT = Path(__file__).resolve().parent.parent
# Programs under emulation keep a core busy each.
_WORKERS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
    except UnknownServiceError as error:
        print(f"images: {error}; known are {', '.join(SERVICES)}", file=sys.stderr)
        return 2
    except (
        CommandError,
        DebianError,
        WheelError,
        TreeError,
        lock.LockError,
        verify.VerifyError,
        registry.PushError,
    ) as error:
        print(f"images: {error}", file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m images", description="container images")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="write image archives")
    build.add_argument("services", nargs="*", metavar="SERVICE", help=", ".join(SERVICES))
    build.add_argument("--arch", choices=ARCHITECTURES, default="amd64")
    build.add_argument("--out", type=Path, help="folder of the archives (default: in the cache)")
    build.add_argument("--tag", help="default: the chart's appVersion")
    build.add_argument("--registry", default=REGISTRY, help="first part of the image names")
    build.set_defaults(command=_build)
    size = commands.add_parser("size", help="print sizes, fail above the budget of a node")
    size.add_argument("--arch", choices=ARCHITECTURES, default="arm64")
    size.set_defaults(command=_size)
    check = commands.add_parser("verify", help="run what is in the images (root)")
    check.add_argument("services", nargs="*", metavar="SERVICE", help=", ".join(SERVICES))
    check.add_argument("--arch", choices=ARCHITECTURES, default="amd64")
    check.set_defaults(command=_verify)
    push = commands.add_parser("push", help="build for both architectures and push to a registry")
    push.add_argument("registry", help="host, perhaps with a path: registry.example/npu-platform")
    push.add_argument("--tag", help="default: the chart's appVersion")
    push.add_argument("--digests", type=Path, help="file for values that pin what was pushed")
    push.set_defaults(command=_push)
    relock = commands.add_parser("lock", help="pin the newest Debian packages")
    relock.set_defaults(command=_lock)
    return parser


def _alone() -> AbstractContextManager[None]:
    return exclusive(cache_dir() / "images" / "lock", reason="it is building images")


def _images(options: argparse.Namespace, names: Sequence[str]) -> Iterator[oci.Image]:
    unknown = [name for name in names if name not in SERVICES]
    if unknown:
        raise UnknownServiceError(f"no such service: {', '.join(unknown)}")
    builder = Builder(_CHECKOUT, cache_dir(), options.arch)
    tag = getattr(options, "tag", None) or default_tag(_CHECKOUT)
    prefix = getattr(options, "registry", REGISTRY)
    for name in names or SERVICES:
        yield builder.image(SERVICES[name], registry=prefix, tag=tag)


def _build(options: argparse.Namespace) -> int:
    out: Path = options.out or cache_dir() / "images" / options.arch
    with _alone():
        for image in _images(options, options.services):
            path = out / f"{sizes.short_name(image)}.tar"
            oci.save(image, path)
            print(f"{image.reference}  {path}", flush=True)
    return 0


def _push(options: argparse.Namespace) -> int:
    where = registry.place(options.registry)
    tag = options.tag or default_tag(_CHECKOUT)
    name = "/".join(part for part in (where.host, where.path) if part)
    images = [
        one.image for arch in ARCHITECTURES for one in made(_CHECKOUT, arch, tag=tag, registry=name)
    ]
    target = registry.Registry(where, registry.stored_login(where.host))
    indexes = index.by_service(images)
    for one in indexes:
        for line in target.push(one):
            print(line, flush=True)
    if options.digests:
        options.digests.parent.mkdir(parents=True, exist_ok=True)
        options.digests.write_text(index.pinned_values(indexes, name))
        print(f"helm install … --values {options.digests}")
    return 0


def _size(options: argparse.Namespace) -> int:
    with _alone():
        images = list(_images(options, ()))
    print("\n".join(sizes.table(images)))
    complaint = sizes.over_budget(images)
    if complaint:
        print(f"images: {complaint}", file=sys.stderr)
    return 1 if complaint else 0


def _verify(options: argparse.Namespace) -> int:
    with _alone():
        images = list(_images(options, options.services))
    with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
        running = [
            pool.submit(
                verify.check, image, SERVICES[sizes.short_name(image)], to_import, cache_dir()
            )
            for image, to_import in zip(images, verify.plan(images), strict=True)
        ]
    failed = False
    for image, done in zip(images, running, strict=True):
        try:
            print(f"{image.reference} ({image.arch}): {done.result()}", flush=True)
        except (verify.VerifyError, StartError) as error:
            failed = True
            print(f"{image.reference} ({image.arch}): {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


def _lock(_: argparse.Namespace) -> int:
    path = Path(__file__).with_name("base.lock")
    old = lock.parse(path.read_text(), source=str(path)) if path.is_file() else {}
    new = {}
    for arch in ARCHITECTURES:
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
