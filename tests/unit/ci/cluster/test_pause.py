"""The sandbox image."""

import hashlib
import io
import json
import tarfile

from ci.cluster import pause


def test_archive_is_a_docker_archive() -> None:
    """Manifest, configuration and layer refer to each other, and the program is executable."""
    with tarfile.open(fileobj=io.BytesIO(pause.pack(b"program"))) as bundle:

        def read(name: str) -> bytes:
            member = bundle.extractfile(name)
            assert member is not None
            return member.read()

        (image,) = json.loads(read("manifest.json"))
        settings = json.loads(read(image["Config"]))
        (layer,) = image["Layers"]
        digest = hashlib.sha256(read(layer)).hexdigest()
        assert settings["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
        assert image["RepoTags"] == [pause.IMAGE]
        with tarfile.open(fileobj=io.BytesIO(read(layer))) as files:
            assert files.getmember("pause").mode == 0o755


def test_packing_is_reproducible() -> None:
    """Equal input gives equal bytes."""
    assert pause.pack(b"program") == pause.pack(b"program")
