"""Run the command line interface: `python -m beambert COMMAND ...`."""

import sys

from beambert.cli import main

if __name__ == "__main__":
    sys.exit(main())
