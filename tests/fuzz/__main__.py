"""Run the campaign of hostile inputs: `python -m tests.fuzz --cases 5000 --seed 1`."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")


def main() -> int:
    """Run the campaign; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="commands at once")
    parser.add_argument("--only", type=int, nargs="+", metavar="CASE", help="the numbers of the cases to run")
    parser.add_argument("--subject", help="cases of this subject alone")
    parser.add_argument("--folder", type=Path, help="where the cases run; those that fail are kept there")
    args = parser.parse_args()

    from tests.fuzz.campaign import run

    folder = args.folder or Path(tempfile.mkdtemp(prefix="beambert-fuzz-"))
    failures = run(folder.absolute(), args.seed, args.only or range(args.cases), args.jobs, args.subject)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
