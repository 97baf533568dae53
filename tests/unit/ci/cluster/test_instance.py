"""Records of instances and the footprint on the machine."""

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from ci.cluster import host, instance, network
from ci.cluster.host import Footprint
from ci.cluster.instance import InstanceError, Registry


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry on a machine without routes."""
    monkeypatch.setattr(network, "in_use", lambda _network: None)
    return Registry(root=tmp_path / "clusters")


def test_instances_get_different_numbers(registry: Registry) -> None:
    """Numbers are the lowest free ones; a freed one is given again."""
    first = registry.allocate("a", version="1.37.2", nodes=2)
    second = registry.allocate("b", version="1.37.2", nodes=1)
    assert (first.index, second.index) == (0, 1)
    assert registry.read("b") == second
    (registry.folder("a") / "instance.json").unlink()
    registry.folder("a").rmdir()
    assert registry.allocate("c", version="1.37.2", nodes=1).index == 0


def test_a_damaged_record_is_no_instance(registry: Registry) -> None:
    """Half a record reads as none, while the name stays known for a clean-up."""
    registry.allocate("a", version="1.37.2", nodes=2)
    for text in ("", "{", "[]", '{"name": "a"}', '{"name": "a", "unknown": 1}'):
        (registry.folder("a") / "instance.json").write_text(text)
        assert registry.read("a") is None
        assert registry.names() == ["a"]


def test_addresses_of_the_machine_are_avoided(monkeypatch: pytest.MonkeyPatch) -> None:
    """A route into the range moves the instance on; a range that is all taken is explained."""
    vpn = IPv4Network("198.18.0.0/17")
    monkeypatch.setattr(network, "in_use", lambda net: "vpn0" if net.overlaps(vpn) else None)
    assert instance.first_free(set()) == 8
    assert instance.first_free({8, 9}) == 10
    monkeypatch.setattr(network, "in_use", lambda _network: "198.18.0.0/15 dev vpn0")
    with pytest.raises(InstanceError, match=r"this machine routes 198\.18\.0\.0/15 dev vpn0"):
        instance.first_free(set())


def test_footprint_takes_back_only_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that were there, or are in use by then, stay."""
    monkeypatch.setattr(host, "NETNS", tmp_path)
    there = tmp_path / "etc"
    there.mkdir()
    footprint = Footprint(tmp_path / "state" / "made.json")
    footprint.make((there / "cni" / "net.d", there / "cdi"))
    footprint.make((there / "opt",))
    (there / "cdi" / "vendor.json").touch()
    footprint.clear()
    assert sorted(path.name for path in there.iterdir()) == ["cdi"]
    assert not (tmp_path / "state" / "made.json").exists()


@pytest.mark.parametrize(
    ("mask", "able"), [("000001ffffffffff", True), ("000001fffeffffff", False)]
)
def test_oom_scores_need_a_capability(tmp_path: Path, mask: str, *, able: bool) -> None:
    """CAP_SYS_RESOURCE is bit 24 of the effective set."""
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\nCapEff:\t{mask}\n")
    assert host.can_lower_oom_score(status) is able
