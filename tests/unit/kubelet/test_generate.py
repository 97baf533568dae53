"""Generated code is what the protos give, and loads beside other kubelet APIs."""

from pathlib import Path

from kubelet._proto import deviceplugin_v1beta1_pb2, podresources_v1_pb2
from kubelet.generate import differences, generate, main


def test_committed_code_is_up_to_date() -> None:
    """Regenerating gives no difference."""
    assert main(["--check"]) == 0


def test_difference_is_found(tmp_path: Path) -> None:
    """Changed, missing and surplus files are all differences."""
    files = generate()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert differences(files, tmp_path) == []

    (tmp_path / "__init__.py").write_text("")
    (tmp_path / "podresources_v1_pb2.py").unlink()
    (tmp_path / "surplus.py").touch()

    assert differences(files, tmp_path) == ["__init__.py", "podresources_v1_pb2.py", "surplus.py"]


def test_descriptors_have_names_of_their_own() -> None:
    """Every kubelet API calls its file api.proto, and the runtime keys by file name."""
    files = {deviceplugin_v1beta1_pb2.DESCRIPTOR.name, podresources_v1_pb2.DESCRIPTOR.name}

    assert len(files) == 2
    assert not any(name.endswith("/api.proto") or name == "api.proto" for name in files)


def test_wire_names() -> None:
    """Package and service names are the contract."""
    services = deviceplugin_v1beta1_pb2.DESCRIPTOR.services_by_name

    assert services["Registration"].full_name == "v1beta1.Registration"
    assert services["DevicePlugin"].full_name == "v1beta1.DevicePlugin"
    lister = podresources_v1_pb2.DESCRIPTOR.services_by_name["PodResourcesLister"]
    assert lister.full_name == "v1.PodResourcesLister"
