"""A stranger's machine: the demonstration in a bare Debian 12 guest.

A guest of QEMU, emulated without KVM, has what a fresh Debian has (systemd, cgroup v2, Debian's
own kernel) and this checkout's committed state. What would take hours to compile there is handed
in; everything else the demonstration installs by itself. See docs/development.md.
"""
