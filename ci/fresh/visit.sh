#!/bin/sh
# What a visitor types on a fresh Debian, run in the guest as root. What it says goes to the
# second serial port; lines that begin with @@ are read by ci.fresh.record.
set -u

step() {
    name=$1
    shift
    echo "@@ start $name"
    "$@"
    status=$?
    echo "@@ end $name $status"
    return "$status"
}

reach_registries() {
    cp -r /mnt/client/. / || return
    # Takes minutes here, and most machines have no certificates of their own.
    if [ -d /mnt/client/usr/local/share/ca-certificates ]; then
        update-ca-certificates || return
    fi
    apt-get -q update
}

take_cache() {
    mkdir -p /root/.cache/npu-platform && mount --bind /mnt/cache /root/.cache/npu-platform
}

clone() {
    git clone -q /mnt/npu-platform.git /root/npu-platform && git -C /root/npu-platform log -1 --oneline
}

demo() {
    make -C /root/npu-platform --no-print-directory demo
}

demo_down() {
    make -C /root/npu-platform --no-print-directory demo-down && nothing_left
}

nothing_left() {
    left=$(
        ls -d /var/lib/npu-platform-cluster /run/netns/* /sys/fs/cgroup/npu-* /sys/class/net/npu* 2>/dev/null
        mount | grep -E 'npu-platform-cluster|/run/netns'
    )
    [ -z "$left" ] || { echo "left behind:" && echo "$left" && return 1; }
}

explain() {
    uname -a
    free -m
    df -h / /mnt
    dmesg --level=err,warn | tail -n 20
    kubectl=$(ls /root/.cache/npu-platform/tools/*-v37-*/kubectl/kubectl)
    export KUBECONFIG=/var/lib/npu-platform-cluster/demo/kubeconfig
    "$kubectl" get nodes,pods -A -o wide
    "$kubectl" get events -A --sort-by=.lastTimestamp | tail -n 40
    "$kubectl" logs -n npu-platform --all-containers --prefix --tail=8 -l app.kubernetes.io/name=npu-platform
    tail -n 12 /var/lib/npu-platform-cluster/demo/log/*.log
}

# shellcheck source=/dev/null
. /mnt/environment.sh

visit() {
    step registries reach_registries || return
    # shellcheck source=/dev/null
    . /etc/profile.d/client.sh
    step cache take_cache && step clone clone || return
    if step demo demo; then
        step demo-down demo_down
    else
        status=$?
        explain
        return "$status"
    fi
}

stty -F /dev/ttyS1 raw -echo
# Through a pipe: programs draw bars and pages on terminals.
{
    uname -srv
    cat /etc/debian_version
    visit
    echo "@@ done $?"
} </dev/null 2>&1 | cat >/dev/ttyS1
sync
