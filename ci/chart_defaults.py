"""Writes the chart's defaults where templates can read them: ``python -m ci.chart_defaults``.

Helm shows a template no defaults but those in the values, and these lack what a user set to null
and, with ``--reuse-values``, what an older chart did not have. See ``templates/_defaults.tpl``.
"""

import argparse
import json
import sys

from ci.chart import CHART, default_values

FILE = CHART / "files" / "defaults.json"


def main(arguments: list[str] | None = None) -> int:
    """Write the file, or with ``--check`` return 1 where it differs."""
    parser = argparse.ArgumentParser(prog="python -m ci.chart_defaults", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    check = parser.parse_args(arguments).check
    fresh = json.dumps(default_values(), ensure_ascii=False, indent=1) + "\n"
    if check:
        if not FILE.exists() or FILE.read_text() != fresh:
            print(f"{FILE} is not what values.yaml says", file=sys.stderr)
            return 1
        return 0
    FILE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
