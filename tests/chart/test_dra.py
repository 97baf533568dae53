"""Mode dra: what is rendered for it, and where it is refused."""

import msgspec
import pytest

from ci import chart
from ci.chart import Json
from ci.command import CommandError
from npu import names
from plugin.config import PluginConfig
from thermal.config import Config

RIGHTS = {"get", "list", "watch", "create", "patch", "delete"}


def objects(*settings: str) -> dict[tuple[str, str], Json]:
    """Return the rendered objects by kind and the end of their name."""
    rendered = chart.objects(chart.render(settings=settings, apis=["resource.k8s.io/v1"]))
    return {
        (item["kind"], item["metadata"]["name"].removeprefix("npu-platform-")): item
        for item in rendered
    }


def test_refused_below_its_kubernetes() -> None:
    """The message says what is needed and what there is."""
    with pytest.raises(CommandError, match=r"plugin\.mode: dra needs Kubernetes 1\.37.*v1\.36"):
        chart.render(settings=["plugin.mode=dra"], kubernetes="1.36")


def test_nothing_of_it_in_the_other_mode() -> None:
    """The default installation knows neither classes nor slices."""
    text = chart.render()

    assert "DeviceClass" not in text
    assert "resourceslices, devicetaintrules" not in text


def test_one_whole_npu_needs_no_token() -> None:
    """A class per resource; the plugin has the kubelet's directories and no account."""
    found = objects("plugin.mode=dra")

    classes = {
        item["spec"]["extendedResourceName"]: item["spec"]["selectors"][0]["cel"]["expression"]
        for (kind, _), item in found.items()
        if kind == "DeviceClass"
    }
    assert set(classes) == set(names.RESOURCES)
    for driver in names.ALL_DRA_DRIVERS:
        assert f"'{driver}'" in classes["rockchip.com/npu"]
    pod = found[("DaemonSet", "plugin")]["spec"]["template"]
    assert pod["metadata"]["labels"]["npu-platform.io/mode"] == "dra"
    assert pod["spec"]["automountServiceAccountToken"] is False
    paths = {volume.get("hostPath", {}).get("path") for volume in pod["spec"]["volumes"]}
    assert {
        "/var/lib/kubelet/plugins",
        "/var/lib/kubelet/plugins_registry",
        "/var/run/cdi",
    } <= paths
    assert "/var/lib/kubelet/device-plugins" not in paths
    assert ("ClusterRole", "npu-platform-plugin") not in found
    rights = {
        resource: set(rule["verbs"])
        for rule in found[("ClusterRole", "npu-platform-guard")]["rules"]
        if rule["apiGroups"] == ["resource.k8s.io"]
        for resource in rule["resources"]
    }
    assert rights == {
        "resourceslices": RIGHTS,
        "devicetaintrules": RIGHTS,
        "resourceclaims": {"get"},
    }
    off = objects("plugin.mode=dra", "guard.eviction.enabled=false")
    rules = off[("ClusterRole", "npu-platform-guard")]["rules"]
    assert "resourceclaims" not in str(rules)


def test_several_devices_need_one_verb() -> None:
    """The account may get claims and nothing else, and only where a profile asks for it."""
    found = objects("plugin.profiles.two.mode=dra", "plugin.profiles.two.dra.readClaims=true")

    assert found[("ClusterRole", "npu-platform-plugin")]["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]}
    ]
    mounted = {
        name: found[("DaemonSet", name)]["spec"]["template"]["spec"]["automountServiceAccountToken"]
        for name in ("plugin", "plugin-two")
    }
    assert mounted == {"plugin": False, "plugin-two": True}


def test_services_understand_it() -> None:
    """Both configuration files decode, and guard and clean-up name the same release."""
    found = objects("plugin.mode=dra")
    plugin = msgspec.yaml.decode(
        found[("ConfigMap", "plugin")]["data"]["plugin.yaml"], type=PluginConfig
    )
    guard = msgspec.yaml.decode(found[("ConfigMap", "guard")]["data"]["guard.yaml"], type=Config)
    assert (plugin.mode, plugin.dra.read_claims) == ("dra", False)
    assert guard.dra.enabled
    arguments = [
        argument
        for key in (("Deployment", "guard"), ("Job", "cleanup"))
        for argument in found[key]["spec"]["template"]["spec"]["containers"][0]["args"]
        if argument.startswith("--release=")
    ]
    assert len(arguments) == 2
    assert len(set(arguments)) == 1


def test_empty_block_means_the_defaults() -> None:
    """A profile of mode dra beside a block without values renders what the defaults render."""
    alone = objects("plugin.mode=dra")

    assert objects("plugin.mode=dra", "plugin.dra=null", "guard=null") == alone


def egress(found: dict[tuple[str, str], Json], component: str) -> list[Json]:
    """Return what a component may call."""
    rules: list[Json] = found[("NetworkPolicy", f"{component}-egress")]["spec"]["egress"]
    return rules


def test_network_policies_let_the_guard_read_devices() -> None:
    """It reads `/dra` of the plugins; without that no device would ever be published."""
    for mode, components in (("devicePlugin", {"exporter"}), ("dra", {"exporter", "plugin"})):
        found = objects(f"plugin.mode={mode}", "networkPolicies.enabled=true")
        reached = {
            peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"]
            for rule in egress(found, "guard")
            for peer in rule.get("to", [])
            if "podSelector" in peer
        }
        assert reached == components
        assert egress(found, "plugin") == []


def test_network_policies_let_the_plugin_read_claims() -> None:
    """With a token it may call the API server, at the addresses that are named, and nobody else."""
    found = objects(
        "plugin.mode=dra",
        "plugin.dra.readClaims=true",
        "networkPolicies.enabled=true",
        "networkPolicies.apiServer.cidrs={192.0.2.1/32}",
    )

    assert egress(found, "plugin") == [
        {
            "ports": [{"protocol": "TCP", "port": port} for port in (443, 6443)],
            "to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}],
        }
    ]
    assert egress(found, "exporter") == []


def test_viewers_see_what_nodes_offer() -> None:
    """`kubectl npu` counts devices in slices; who looks may read them and change nothing."""
    rules = objects("plugin.mode=dra")[("ClusterRole", "npu-viewer")]["rules"]
    (rule,) = (rule for rule in rules if rule["apiGroups"] == ["resource.k8s.io"])
    assert set(rule["resources"]) == {"resourceslices", "resourceclaims", "devicetaintrules"}
    assert set(rule["verbs"]) == {"get", "list", "watch"}
