"""Run the training loop and record the run: the loop, preemption, `run.json`, run files and locks."""
