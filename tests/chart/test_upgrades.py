"""What an upgrade must not change, and values that lack what this chart added."""

import tarfile
from pathlib import Path

import pytest

from ci import chart
from ci.chart import CHART, HELM_VERSIONS, Json
from tests.chart.conftest import values_files

#: The first chart of the project, as `helm package` made it.
EARLIER = Path(__file__).parent / "earlier" / "npu-platform-0.0.1.tgz"
#: A choice between kinds of update: without its type there is nothing to choose.
WHOLE = {"updateStrategy"}


def without(values: Json, depth: int) -> Json:
    """Return the values with null for everything at ``depth``."""
    return {
        key: without(value, depth - 1)
        if isinstance(value, dict) and value and depth > 1 and key not in WHOLE
        else None
        for key, value in values.items()
    }


def by_identity(objects: list[Json]) -> dict[tuple[str, str], Json]:
    """Return objects by kind and name."""
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the first chart."""
    target = tmp_path_factory.mktemp("earlier")
    with tarfile.open(EARLIER) as archive:
        archive.extractall(target, filter="data")
    return target / CHART.name


@pytest.mark.parametrize("helm", HELM_VERSIONS)
@pytest.mark.parametrize("block", list(chart.default_values()))
def test_a_block_set_to_null_is_the_default(block: str, helm: str) -> None:
    """An empty `plugin:` in a values file leaves the plugin as it is without the file."""
    defaults = chart.objects(chart.render(helm=helm))
    assert chart.objects(chart.render(settings=[f"{block}=null"], helm=helm)) == defaults


@pytest.mark.parametrize("helm", HELM_VERSIONS)
@pytest.mark.parametrize("depth", [2, 3, 5])
def test_nulls_further_down_are_defaults(depth: int, helm: str) -> None:
    """Nothing fails for want of a value; what may be left out of a Pod is left out."""
    values = without(chart.default_values(), depth)
    defaults = by_identity(chart.objects(chart.render(helm=helm)))
    found = by_identity(chart.objects(chart.render(values=values, helm=helm)))
    # Without a resource for rknpu there is no test of one.
    assert defaults.keys() - found.keys() <= {("Pod", "npu-platform-test-npu")}
    assert not found.keys() - defaults.keys()
    for what in [("DaemonSet", "npu-platform-plugin"), ("Deployment", "npu-platform-guard")]:
        spec = found[what]["spec"]["template"]["spec"]
        assert "tolerations" not in spec
        assert spec["containers"][0]["image"].startswith("localhost/npu-platform/")


@pytest.mark.parametrize("helm", HELM_VERSIONS)
def test_values_of_an_older_chart_are_enough(earlier: Path, helm: str) -> None:
    """`--reuse-values` after an upgrade renders what the defaults render."""
    old = chart.default_values(earlier / "values.yaml")

    def reused(new: Json, known: Json) -> Json:
        return {
            key: reused(value, known.get(key) or {}) if isinstance(value, dict) else known.get(key)
            for key, value in new.items()
            if key in known or not isinstance(value, dict)
        } | {key: None for key in new if key not in known}

    values = reused(chart.default_values(), old)
    found = by_identity(chart.objects(chart.render(values=values, helm=helm)))
    assert found.keys() == by_identity(chart.objects(chart.render(helm=helm))).keys()


#: What the API server never lets anybody change, by kind; an upgrade that tries is refused.
IMMUTABLE = {
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template"),
    "Service": ("spec.clusterIP", "spec.ipFamilies"),
    "PriorityClass": ("value", "preemptionPolicy"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "ConfigMap": ("immutable",),
    "Secret": ("type", "immutable"),
}
#: Values files that the first chart takes, too.
IN_BOTH = ["default", "demo", "exporter-only-values", "guard-off-values", "observe-values"]
IN_BOTH += ["monitoring-values", "profiles-values", "simulator-values"]


def fixed(item: Json) -> Json:
    """Return what cannot change of an object."""

    def at(path: str) -> object:
        node: object = item
        for key in path.split("."):
            node = node.get(key) if isinstance(node, dict) else None
        return node

    return {path: at(path) for path in IMMUTABLE.get(item["kind"], ())}


def kept(objects: list[Json]) -> dict[tuple[str, str | None, str], Json]:
    """Return what an upgrade finds again; hooks are made anew."""
    return {
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]): fixed(item)
        for item in objects
        if "helm.sh/hook" not in item["metadata"].get("annotations", {})
    }


@pytest.mark.parametrize("feature", IN_BOTH)
def test_nothing_that_cannot_change_did(earlier: Path, feature: str) -> None:
    """Same objects, same names, same selectors, roles and classes, with the same values."""
    files, apis = values_files(feature), ["monitoring.coreos.com/v1"]
    before = kept(chart.objects(chart.render(*files, apis=apis, chart=earlier)))
    now = kept(chart.objects(chart.render(*files, apis=apis)))
    assert {what: now.get(what) for what in before} == before


def test_selectors_stay_where_a_part_is_turned_on_later(earlier: Path) -> None:
    """A second DaemonSet of a component takes a new selector, never the first one's."""
    before = kept(chart.objects(chart.render(chart=earlier)))
    for feature in ("ascend-values", "teams-values", "autoscaling-values"):
        files, apis = values_files(feature), ["keda.sh/v1alpha1"]
        now = kept(chart.objects(chart.render(*files, apis=apis)))
        assert {what: now.get(what) for what in before} == before, feature
    now = kept(chart.objects(chart.render(settings=["plugin.mode=dra"])))
    assert {what: now.get(what) for what in before} == before


def test_one_release_per_cluster() -> None:
    """Two releases have one object in common, of which Helm makes one the owner."""
    first = by_identity(chart.objects(chart.render(release="a", namespace="one")))
    second = by_identity(chart.objects(chart.render(release="b", namespace="two")))
    shared = {kind for kind, name in first.keys() & second.keys() if "once-per-cluster" in name}
    assert shared == {"ClusterRole"}
    role = first["ClusterRole", "npu-platform-is-installed-once-per-cluster"]
    assert not role["rules"]


def test_every_template_knows_the_defaults() -> None:
    """Any template may be rendered first, so each begins by filling in what is missing."""
    start = '{{- include "npu-platform.defaults" . -}}\n'
    for path in sorted((CHART / "templates").rglob("*")):
        if path.is_file() and path.suffix != ".tpl":
            assert path.read_text().startswith(start), path
