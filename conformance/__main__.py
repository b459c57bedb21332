"""``python -m einsumx.conformance``."""

# ruff: noqa: T201  printing is what this module is for

from __future__ import annotations

import argparse
import sys
from collections import Counter

from einsumx.conformance.deviations import deviations_of
from einsumx.conformance.subject import backend_subject, callable_subject
from einsumx.conformance.suite import LEVELS, cases, run


def main() -> int:
    """Run the suite as the command line asks."""
    parser = argparse.ArgumentParser(prog="python -m einsumx.conformance")
    parser.add_argument("--backend", default="")
    parser.add_argument("--callable", default="")
    parser.add_argument("--device", default="")
    parser.add_argument("--level", choices=LEVELS, default="quick")
    parser.add_argument("--case", default="*")
    options = parser.parse_args()
    if options.callable:
        subject = callable_subject(options.callable, options.backend, options.device)
    else:
        subject = backend_subject(options.backend or "numpy", options.device)
    counts: Counter[str] = Counter()
    for outcome in run(subject, cases(options.level, options.case), deviations_of(subject)):
        counts[outcome.status] += 1
        if outcome.status == "fail":
            print(f"{outcome.case}\n    {outcome.message}\n{outcome.reproducer}")
    print(dict(counts))
    return int(counts["fail"] > 0)


if __name__ == "__main__":
    sys.exit(main())
