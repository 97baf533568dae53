"""What the machine is short of."""

import os

import pytest

from ci.cluster import host


def test_an_inotify_instance_that_is_there_is_given_back() -> None:
    """Nothing is short, and looking costs nothing."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert host.shortage(lambda: descriptor) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_no_inotify_instance_is_named_with_its_limit() -> None:
    """Kubelets without one never become Ready and do not say why."""
    said = host.shortage(lambda: -1)
    assert said is not None
    assert "fs.inotify.max_user_instances is " in said
