"""Run a training command on a Cloud TPU that is requested for it and deleted afterwards."""
