"""All dashboards, by the name of their file."""

import json
from pathlib import Path

from ci.chart import CHART, Json
from ci.dashboards.fleet import fleet
from ci.dashboards.node import node
from ci.dashboards.service import service
from ci.dashboards.team import team
from ci.dashboards.thermal import thermal

FOLDER = CHART / "dashboards"


def dashboards() -> dict[str, Json]:
    """Return file name → dashboard."""
    return {f"{one['uid']}.json": one for one in (fleet(), node(), team(), service(), thermal())}


def text(dashboard: Json) -> str:
    """Return the text of a dashboard's file."""
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def differences(folder: Path = FOLDER) -> list[Path]:
    """Return the files that are not what is described here, missing and needless ones too."""
    wanted = {folder / name: text(one) for name, one in dashboards().items()}
    there = {file: file.read_text() for file in folder.glob("*")}
    return sorted(
        file for file in wanted.keys() | there.keys() if wanted.get(file) != there.get(file)
    )


def write(folder: Path = FOLDER) -> None:
    """Write all files, and remove what is none of them."""
    folder.mkdir(exist_ok=True)
    for file in differences(folder):
        if file.name in dashboards():
            file.write_text(text(dashboards()[file.name]))
        else:
            file.unlink()
