"""What is installed beside prometheus-adapter on an embedded cluster."""

import yaml

from ci import prometheus_adapter


def test_rules_of_the_chart_become_the_programs() -> None:
    """The same list under another name, in the file that the program is told to read."""
    rules = {"external": [{"seriesQuery": 'depth{namespace!=""}'}]}
    made = {
        item["kind"]: item
        for item in prometheus_adapter.objects(
            url="http://192.0.2.1:9090", rules=rules, relist_seconds=10
        )
    }
    (file,) = made["ConfigMap"]["data"].items()
    assert file[0] == "config.yaml"
    assert yaml.safe_load(file[1]) == {"externalRules": rules["external"]}
    (container,) = made["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert "--prometheus-url=http://192.0.2.1:9090" in container["args"]


def test_one_version_of_the_module() -> None:
    """The module is required as it is published."""
    recipe = prometheus_adapter.recipe()
    assert f"sigs.k8s.io/prometheus-adapter v{prometheus_adapter.VERSION}" in recipe.go_mod
    assert recipe.programs == ("adapter",)
