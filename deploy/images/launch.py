"""What the flex templates' images run: makes the job of the command that the image is for."""

import os
import sys

from deploy.dataflow.launcher import main

sys.exit(main(os.environ["BEAMBERT_COMMAND"], sys.argv[1:]))
