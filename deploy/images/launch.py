"""Entry point of the flex template images: launch the job of the image's command."""

import os
import sys

from beambert.deploy.dataflow.launcher import main

sys.exit(main(os.environ["BEAMBERT_COMMAND"], sys.argv[1:]))
