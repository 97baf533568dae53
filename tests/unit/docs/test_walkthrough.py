"""The walkthrough's files are there, are used, and are the documented example but for the model."""

import re
from typing import Final

import yaml

from tests.unit.docs.pages import ROOT, commands, pages

_EXAMPLES: Final = ROOT / "docs/examples"
_FOLDER: Final = _EXAMPLES / "walkthrough"


def test_files_that_commands_name_exist() -> None:
    """On all pages; and the walkthrough's folder has none that nobody applies."""
    named = {
        path
        for page in pages()
        for command in commands(page)
        for path in re.findall(r"docs/examples/[\w/.-]+", command)
    }
    assert {path for path in named if not (ROOT / path).is_file()} == set()
    folder = {str(file.relative_to(ROOT)) for file in _FOLDER.iterdir()}
    assert folder == {path for path in named if "/walkthrough/" in path}


def test_the_service_is_the_documented_one() -> None:
    """But for what a model and a board need, and what the walk is about."""
    example, walked = (
        list(yaml.safe_load_all(file.read_text()))
        for file in (_EXAMPLES / "yolov8.yaml", _FOLDER / "service.yaml")
    )
    deployments = (example[0], walked[0])
    for deployment in deployments:
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert container["args"][0] == "--service-name=detector"
        for removed in ("args", "volumeMounts"):
            container.pop(removed, None)
        del container["resources"]["requests"]
        for removed in ("nodeSelector", "volumes"):
            spec.pop(removed, None)
        deployment["spec"].pop("replicas", None)
        deployment["spec"]["template"]["metadata"].pop("annotations", None)
    assert walked == example
