"""Configuration of the cluster's programs."""

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from ci.cluster import config
from ci.cluster.config import Runtime
from ci.cluster.plan import Plan

PLAN = Plan(name="demo", index=3)


@pytest.mark.parametrize(("version", "api"), [("1.30.0", "v1beta3"), ("1.37.2", "v1beta4")])
def test_kubeadm_speaks_what_the_version_knows(version: str, api: str) -> None:
    """Both documents carry the API version and point at the instance's addresses."""
    init, cluster = yaml.safe_load_all(config.kubeadm(PLAN, version, Path("/pki"), node="node1"))
    assert init["apiVersion"] == cluster["apiVersion"] == f"kubeadm.k8s.io/{api}"
    assert init["localAPIEndpoint"]["advertiseAddress"] == "198.18.48.1"
    assert cluster["controlPlaneEndpoint"] == "198.18.48.1:6443"
    assert cluster["networking"]["serviceSubnet"] == "198.19.48.0/20"


@pytest.mark.parametrize(("version", "known"), [("1.30.0", False), ("1.37.2", True)])
def test_kubelet_accepts_cgroup_v1(version: str, *, known: bool) -> None:
    """The switch is set where it exists: an unknown field would be fatal."""
    settings = json.loads(config.kubelet(PLAN.node(2), version, Path("/ca")))
    assert settings.get("failCgroupV1") == (False if known else None)


def test_kubelet_never_evicts_for_disk() -> None:
    """A disk that is nearly full is the machine's affair."""
    settings = json.loads(config.kubelet(PLAN.node(2), "1.37.2", Path("/ca")))
    disk = {name: value for name, value in settings["evictionHard"].items() if "fs." in name}
    assert set(disk.values()) == {"0%"}
    assert len(disk) == 4
    assert settings["cgroupRoot"] == "/npu-demo/node2"


@pytest.mark.parametrize("cdi", [True, False])
@pytest.mark.parametrize("restricted", [True, False])
def test_containerd_configuration_is_valid(*, cdi: bool, restricted: bool) -> None:
    """It parses, and says about oom scores and CDI what the machine and the release need."""
    text = config.containerd(
        Runtime(
            cni_plugins=Path("/cni"),
            restrict_oom_score_adj=restricted,
            snapshotter="overlayfs",
            cdi=cdi,
        )
    )
    cri = tomllib.loads(text)["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is restricted
    assert cri["disable_apparmor"] is True
    assert cri.get("enable_cdi") == (True if cdi else None)
    assert cri["cni"]["bin_dir"] == "/cni"


def test_api_server_routes_to_endpoints() -> None:
    """Aggregated servers and webhooks are reached from outside the Service network."""
    arguments = config.api_server(PLAN, Path("/pki"))
    assert "--enable-aggregator-routing=true" in arguments
    assert "--bind-address=198.18.48.1" in arguments
