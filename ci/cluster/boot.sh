#!/bin/sh
# Process 1 of a node: furnish its namespaces, then turn into the init that reaps and waits.
# usage: boot.sh HOSTNAME INIT TARGET=SOURCE...    (each SOURCE is bound over its TARGET)
#
# The kubelet's directories are compiled in, so two kubelets on one machine need a mount
# namespace each. Mounts arrive from the machine (slave) and never travel back to it.
set -eu
hostname "$1"
init=$2
shift 2
mount -t proc proc /proc
mount -t tmpfs -o mode=755,size=256m tmpfs /run
mkdir -p /run/netns /run/lock /run/cdi
for bind in "$@"; do
    mount --bind "${bind#*=}" "${bind%%=*}"
done
# Pods with mountPropagation need a shared root; the namespace was made a slave before.
mount --make-rshared /
exec "$init"
