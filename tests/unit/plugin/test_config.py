"""The plugin's configuration accepts what the kubelet accepts."""

import pytest

from daemon.config import ConfigError, parse
from plugin.config import PluginConfig, is_plain_path, resource_name_problem
from plugin.sharing import Sharing


def test_defaults() -> None:
    """An empty file offers whole devices with a neutral library."""
    config = parse("", PluginConfig)

    assert config.resource_names == {
        "rknpu": "rockchip.com/npu",
        "rocket": "rockchip.com/npu-rocket",
        "ascend910": "huawei.com/Ascend910",
        "ascend910b": "huawei.com/Ascend910",
        "ascend910c": "huawei.com/Ascend910",
        "ascend950": "huawei.com/npu",
        "ascend310p": "huawei.com/Ascend310P",
        "ascend310": "huawei.com/Ascend310",
        "ascend310b": "huawei.com/Ascend310",
    }
    assert config.library.mode == "neutral"
    assert config.extra_devices == ()
    assert not config.policy.active


def test_chart_keys() -> None:
    """The file as the chart writes it."""
    text = """
    resourceNames: {rknpu: rockchip.com/npu, rocket: rockchip.com/npu-rocket}
    library: {mode: system, searchPaths: [/opt/rknn/lib]}
    extraDevices: [/dev/dma_heap/system]
    """

    config = parse(text, PluginConfig)

    assert config.library.search_paths == ("/opt/rknn/lib",)
    assert config.extra_devices == ("/dev/dma_heap/system",)


@pytest.mark.parametrize("name", ["rockchip.com/npu", "huawei.com/Ascend310P", "a/b", "x.y/A_b.c"])
def test_extended_resource_names(name: str) -> None:
    """Domain and name, as Kubernetes has them."""
    assert resource_name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    ["npu", "a/b/c", "kubernetes.io/npu", "x.kubernetes.io/npu", "requests.a/b", "A.com/x", "a/"],
)
def test_names_the_kubelet_refuses(name: str) -> None:
    """Better refused here with the key than by the kubelet for ever."""
    assert resource_name_problem(name) is not None


@pytest.mark.parametrize("path", ["dev/x", "/dev/../x", "/dev/./x", "/dev//x", "/dev/x y", "/"])
def test_paths_that_are_not_plain(path: str) -> None:
    """A path goes to the container runtime as it is, so it must be what it looks like."""
    assert not is_plain_path(path)


def test_search_path_is_checked() -> None:
    """The key and its position are named."""
    with pytest.raises(ConfigError, match=r"library\.searchPaths\[1\]"):
        parse("library: {searchPaths: [/opt, lib]}", PluginConfig)


def test_sharing() -> None:
    """Slots by number or by core; every name that was or is used counts as ours."""
    config = parse("sharing: {slots: cores, resourceName: shared}", PluginConfig)

    assert config.policy == Sharing(slots="cores", own_name=True)
    assert "rockchip.com/npu.shared" in config.resources
    assert "rockchip.com/npu" in config.resources


@pytest.mark.parametrize(
    ("sharing", "key"),
    [
        ("{slots: 0}", "sharing.slots"),
        ("{slots: 65}", "sharing.slots"),
        ("{slots: half}", "sharing.slots"),
        ("{maxSlotsPerContainer: 0}", "sharing.maxSlotsPerContainer"),
        ("{resourceName: other}", "sharing.resourceName"),
    ],
)
def test_sharing_that_cannot_be(sharing: str, key: str) -> None:
    """The key is named."""
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        parse(f"sharing: {sharing}", PluginConfig)


def test_name_without_room_for_its_ending_is_refused() -> None:
    """The kubelet allows 63 characters after the slash."""
    names = f"resourceNames: {{rknpu: example.com/{'n' * 60}}}"
    parse(names, PluginConfig)
    with pytest.raises(ConfigError, match=r"sharing\.resourceName"):
        parse(f"{names}\nsharing: {{slots: 2, resourceName: shared}}", PluginConfig)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("containerPaths: {card: /etc/x}", r"containerPaths\.card"),
        ("containerPaths: {render: /dev/../x}", r"containerPaths\.render"),
        ("extraDevices: [/dev/rga, /dev/../etc/passwd]", r"extraDevices\[1\]"),
        ("sharing: {wholeDevices: [npu0]}", r"sharing\.wholeDevices needs"),
        ("sharing: {slots: 2, wholeDevices: [npu0]}", r"sharing\.wholeDevices needs"),
        (
            "sharing: {slots: 2, resourceName: shared, wholeDevices: [npu0-s1]}",
            r"sharing\.wholeDevices\[0\]",
        ),
        (
            "sharing: {slots: 2, resourceName: shared, wholeDevices: [card0]}",
            r"sharing\.wholeDevices\[0\]",
        ),
    ],
)
def test_mistakes_that_types_cannot_see(text: str, key: str) -> None:
    """Each names its key."""
    with pytest.raises(ConfigError, match=key):
        parse(text, PluginConfig)
