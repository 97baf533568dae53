"""The disk of a bare Debian 12: debootstrap's smallest system, a kernel, git, make and python3.

Nothing of this project, of its needs or of this machine's configuration is in it. It is made once
and never written to: each run puts its changes elsewhere.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ci import sources, system
from ci.command import run
from ci.fresh import machine
from ci.system import Need

SUITE: Final = "bookworm"
#: Beyond debootstrap's ``minbase``: what makes it boot, and what a visitor needs to clone and make.
PACKAGES: Final = (
    *("systemd-sysv", "udev", "dbus", "linux-image-amd64"),
    *("git", "make", "python3", "ca-certificates"),
)
NEEDS: Final = (
    Need(package="debootstrap", command="debootstrap"),
    Need(package="e2fsprogs", command="mke2fs"),
    Need(package="qemu-system-x86", command=machine.PROGRAM),
)
LABEL: Final = "root"
_SIZE: Final = "12G"
_UNIT: Final = "visitor.service"
_FILES: Final = {
    "etc/hostname": "stranger\n",
    "etc/hosts": "127.0.0.1 localhost stranger\n::1 localhost\n",
    "etc/fstab": f"LABEL={LABEL} / ext4 defaults 0 1\n",
    "etc/systemd/network/80-dhcp.network": "[Match]\nName=e*\n[Network]\nDHCP=ipv4\n",
    "etc/resolv.conf": f"nameserver {machine.NAME_SERVER}\n",
    # Brought by the second disk, so that this image need not know what a visitor does.
    f"etc/systemd/system/{_UNIT}": f"""\
[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Environment=HOME=/root
ExecStartPre=/bin/mount -L {machine.VISITOR_LABEL} /mnt
ExecStart=/bin/sh /mnt/visit.sh
ExecStopPost=/bin/systemctl poweroff --force
[Install]
WantedBy=multi-user.target
""",
}
_ENABLED: Final = ("systemd-networkd.service", "systemd-networkd-wait-online.service", _UNIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A disk and what boots it."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The root file system, without a partition table."""
        return self.folder / "root.ext4"

    @property
    def kernel(self) -> Path:
        """Debian's kernel."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """The initial file system that its package made."""
        return self.folder / "initrd.img"


def provide(home: Path) -> Image:
    """Return the image below ``home``, made on first use. Raises ``ci.command.CommandError``."""
    system.ensure(NEEDS, purpose="the emulated guest")
    image = Image(folder=home / f"{SUITE}-{recipe_key()}")
    if not image.folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix="making-") as name:
            work = Path(name)
            _make(work / "tree", Image(folder=work / "image"))
            (work / "image").rename(image.folder)
    return image


def recipe_key() -> str:
    """Return a short name of everything that decides what is on the disk, but the date."""
    recipe = repr((SUITE, PACKAGES, sorted(_FILES.items()), _ENABLED, LABEL, _SIZE))
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def mirror(entries: Sequence[sources.Entry]) -> str:
    """Return the address of the suite itself among the machine's Debian sources."""
    return next(entry.uris[0] for entry in entries if SUITE in entry.suites)


def _make(tree: Path, image: Image) -> None:
    keyring = sources.host_keyring()
    derived = sources.for_suite(sources.host_entries(), SUITE, keyring)
    run(
        [
            *("debootstrap", "--arch=amd64", "--variant=minbase", "--components=main"),
            *(f"--keyring={keyring}", f"--include={','.join(PACKAGES)}"),
            *(SUITE, tree, mirror(derived)),
        ],
        purpose="make a bare Debian",
    )
    run(["chroot", tree, "apt-get", "clean"], purpose="drop downloaded packages")
    # The mirror is this machine's; the guest learns it when it runs.
    (tree / "etc/apt/sources.list").unlink()
    for name, text in _FILES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
    run(["chroot", tree, "systemctl", "enable", *_ENABLED], purpose="enable the guest's services")
    image.folder.mkdir()
    shutil.copyfile((tree / "vmlinuz").resolve(), image.kernel)
    shutil.copyfile((tree / "initrd.img").resolve(), image.initrd)
    make_disk(tree, image.disk, label=LABEL, size=_SIZE)


def make_disk(folder: Path, disk: Path, *, label: str, size: str) -> None:
    """Write ``folder`` into a sparse file that is an ext4 file system."""
    command = [system.which("mke2fs") or "mke2fs", "-q", "-t", "ext4", "-L", label, "-m", "0"]
    run([*command, "-d", folder, disk, size], purpose=f"write the file system {label}")
