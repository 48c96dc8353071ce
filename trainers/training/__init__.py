"""Run the training loop and record the run: loop, preemption, `run.json`, run files, locks."""
