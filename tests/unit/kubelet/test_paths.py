"""Socket names and paths follow the kubelet's rules."""

import pytest

from kubelet.paths import (
    SocketPathError,
    check_socket_path,
    device_plugins_dir,
    is_own_socket_name,
    new_socket_name,
    pod_resources_socket,
    registration_socket,
)


def test_paths_below_the_kubelet_directory() -> None:
    """Where the kubelet puts them by default."""
    assert str(registration_socket("/k")) == "/k/device-plugins/kubelet.sock"
    assert str(pod_resources_socket("/k")) == "/k/pod-resources/kubelet.sock"


def test_socket_names_are_new_each_time_and_recognised() -> None:
    """A used name is never given again."""
    names = {new_socket_name() for _ in range(200)}

    assert len(names) == 200
    assert all(is_own_socket_name(name) for name in names)


@pytest.mark.parametrize(
    "name",
    ["kubelet.sock", "npu.sock", "npu-1234567.sock", "npu-123456789.sock", "npu-1234567G.sock"],
)
def test_other_names_are_not_ours(name: str) -> None:
    """Whatever does not follow the grammar is left alone."""
    assert not is_own_socket_name(name)


def test_limit_of_socket_paths_counts_bytes() -> None:
    """107 bytes fit, 108 do not; a character may be several bytes."""
    check_socket_path("/" + "x" * 106)
    with pytest.raises(SocketPathError, match="108 bytes"):
        check_socket_path("/" + "x" * 107)
    with pytest.raises(SocketPathError):
        check_socket_path("/" + "é" * 54)


def test_default_directory_leaves_room() -> None:
    """The usual installation is far from the limit."""
    check_socket_path(device_plugins_dir("/var/lib/kubelet") / new_socket_name())
