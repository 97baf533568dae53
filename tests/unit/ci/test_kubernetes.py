"""What is built of Kubernetes, by which Go."""

from pathlib import Path

import pytest

from ci import gotool, kubernetes
from ci.kubernetes import VersionError

PUBLISHED = """\
module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
	k8s.io/api v0.0.0
	k8s.io/kube-openapi v0.0.0-20260101000000-abcdefabcdef
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""


def test_staging_modules_point_at_their_releases() -> None:
    """Each replaced module gets its own release, others are left alone, language settings stay."""
    recipe = kubernetes.recipe("1.37.2", PUBLISHED, ["kubelet"])
    assert recipe.go_mod.splitlines() == [
        "module npu-platform.invalid/kubernetes",
        "go 1.26.0",
        "godebug default=go1.26",
        "require k8s.io/kubernetes v1.37.2",
        "replace k8s.io/api => k8s.io/api v0.37.2",
        "replace k8s.io/kubelet => k8s.io/kubelet v0.37.2",
    ]
    assert recipe.packages == ("k8s.io/kubernetes/cmd/kubelet",)
    assert recipe.programs == ("kubelet",)


def test_programs_know_their_version() -> None:
    """The version is stamped in: without it a server calls itself v0.0.0."""
    flags = kubernetes.recipe("1.34.4", PUBLISHED).ldflags
    assert "version.gitVersion=v1.34.4" in flags
    assert "version.gitMinor=34" in flags


@pytest.mark.parametrize("version", ["1.29.9", "v1.37.2", "1.37", "2.0.0", "latest", "1.37.2; rm"])
def test_other_versions_are_refused(version: str) -> None:
    """Only complete versions from 1.30 on are taken, with the version in the message."""
    with pytest.raises(VersionError, match="is not a Kubernetes version"):
        kubernetes.minor(version)


def test_go_settings_of_the_machine_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes the result is fixed; where modules come from stays the administrator's."""
    for name in ("GOROOT", "GOFLAGS", "GOOS", "GOEXPERIMENT", "GOTOOLCHAIN", "CGO_ENABLED"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("GOPROXY", "off")
    environment = gotool.environment(Path("/cache"))
    assert not {"GOROOT", "GOOS", "GOEXPERIMENT"} & environment.keys()
    assert environment["GOPROXY"] == "off"
    assert (environment["GOTOOLCHAIN"], environment["CGO_ENABLED"]) == ("local", "0")
    assert environment["GOMODCACHE"] == "/cache/go/mod"
