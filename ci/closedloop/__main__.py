"""``python -m ci.closedloop [--hours N] [--write]``: simulate everything and print the page."""

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ci.closedloop.board import Tally
from ci.closedloop.report import Case, cases, page
from ci.closedloop.scenarios import PODS, POLICIES, ROOM_POLICIES, ROOMS, run

PAGE = Path(__file__).parent.parent.parent / "docs" / "thermal-closed-loop.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases, two processors at a time where there are two."""
    parser = argparse.ArgumentParser(prog="python -m ci.closedloop", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="simulated hours per case")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name}")
    chosen = parser.parse_args(arguments)
    todo = cases()
    tallies: dict[Case, Tally] = {}
    with ProcessPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = pool.map(_simulate, todo, [chosen.hours] * len(todo))
        for number, (case, tally) in enumerate(zip(todo, results, strict=True), 1):
            tallies[case] = tally
            print(f"{number}/{len(todo)} {case}", file=sys.stderr)
    text = page(tallies, hours=chosen.hours)
    if chosen.write:
        PAGE.write_text(text)
    else:
        print(text, end="")
    return 0


def _simulate(case: Case, hours: float) -> Tally:
    # Ten boards take ten times as long, and are ten times the statistics.
    policies = POLICIES if case.boards == 1 else ROOM_POLICIES
    return run(
        policies[case.policy](),
        room=ROOMS[case.room],
        pod_seconds=PODS[case.pods],
        slots=case.slots,
        hours=hours if case.boards == 1 else hours / 4,
        board=case.board,
        boards=case.boards,
    )


if __name__ == "__main__":
    sys.exit(main())
