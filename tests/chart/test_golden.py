"""The default render is what the repository says it is, so that a review sees every change."""

import difflib
import os
from pathlib import Path

from ci import chart

GOLDEN = Path(__file__).parent / "golden" / "default.yaml.golden"
#: Set to 1 to write what is rendered now; the difference then shows in the commit.
SWITCH = "UPDATE_GOLDEN"


def test_default_render_is_golden() -> None:
    """Nothing in the default install changes unseen."""
    rendered = chart.render()
    if os.environ.get(SWITCH) == "1":
        GOLDEN.write_text(rendered)
    expected = GOLDEN.read_text()
    difference = "\n".join(
        difflib.unified_diff(expected.splitlines(), rendered.splitlines(), "golden", "rendered")
    )
    assert not difference, f"if this is meant, run with {SWITCH}=1\n{difference}"
