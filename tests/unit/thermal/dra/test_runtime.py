"""Runtimes that are known to drop the devices of claims, and no others."""

import pytest

from thermal.dra.runtime import knows_cdi


@pytest.mark.parametrize(
    "runtime", ["containerd://1.6.20", "containerd://1.5.9-0ubuntu1", "containerd://v1.6.33"]
)
def test_old_containerd_is_refused(runtime: str) -> None:
    """CDI came with 1.7."""
    assert not knows_cdi(runtime)


@pytest.mark.parametrize(
    "runtime",
    [
        "containerd://1.7.24",
        "containerd://1.10.0",
        "containerd://2.4.2",
        "cri-o://1.33.0",
        "docker://28.1.0",
        "containerd://",
        "",
    ],
)
def test_of_what_may_know_it_nothing_is_taken_away(runtime: str) -> None:
    """Newer ones, other makers', and nodes that do not tell."""
    assert knows_cdi(runtime)
