"""Writes the chart's dashboards: ``python -m ci.dashboards [--check]``."""

import argparse
import sys

from ci.dashboards import catalogue


def main() -> int:
    """Write the files, or with ``--check`` return 1 where one differs."""
    parser = argparse.ArgumentParser(prog="python -m ci.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail on a difference, write nothing")
    if not parser.parse_args().check:
        catalogue.write()
        return 0
    for file in (different := catalogue.differences()):
        print(f"{file} is not what ci/dashboards describes", file=sys.stderr)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
