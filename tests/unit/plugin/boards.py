"""Records of boards for tests of the pure half."""

from npu.model import DeviceNode, Library, Npu

RESOURCE = "rockchip.com/npu"
RESOURCES = {"rknpu": RESOURCE, "rocket": "rockchip.com/npu-rocket"}


def drm_npu(position: int = 0, **changes: object) -> Npu:
    """Return an RK3588's NPU behind the vendor driver in DRM mode."""
    unit = f"fda{position:x}0000.npu"
    by_path = f"/dev/dri/by-path/platform-{unit}"
    values: dict[str, object] = {
        "id": f"npu{position}",
        "vendor": "rockchip",
        "model": "rk3588",
        "driver": "rknpu",
        "mode": "drm",
        "unit": unit,
        "cores": 3,
        "nodes": (
            DeviceNode(
                role="card",
                path=f"/dev/dri/card{position}",
                stable_path=f"{by_path}-card",
                container_path=f"/dev/dri/card{1 + position}",
            ),
            DeviceNode(
                role="render",
                path=f"/dev/dri/renderD{128 + position}",
                stable_path=f"{by_path}-render",
                container_path=f"/dev/dri/renderD{129 + position}",
            ),
        ),
        "libraries": (Library(name="librknnrt.so", path="/usr/lib/librknnrt.so", version="2.3.2"),),
    }
    return Npu(**(values | changes))  # type: ignore[arg-type]


def misc_npu() -> Npu:
    """Return a small board's NPU behind the vendor driver in misc mode, without library."""
    node = DeviceNode(
        role="misc", path="/dev/rknpu", stable_path="/dev/rknpu", container_path="/dev/rknpu"
    )
    return drm_npu(0, model="rk3566", mode="misc", cores=None, nodes=(node,), libraries=())
