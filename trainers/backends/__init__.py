"""Run the steps of the training loop on devices: one package for each library that computes them.

`trainers.training.loop` and the runs of `trainers.pretraining` and `trainers.finetuning` need of a backend:

- **devices**: `Distribution.open(strategy, ...)` finds them and says how many replicas there are (`replicas`), whether
  this process writes the files (`is_chief`) and whether others train too (`several_processes`). `batches(make)` reads
  each process's share of the input, `barrier()` waits for all processes.
- **the compiled step**: `Trainer(objective, config, distribution)` holds variables, optimizer and step counter.
  `make_loop(iterator)` returns a function of (iterator, first step, number of steps, stop vote) that makes these steps
  without leaving the device, and returns the sums of the metrics, the first step that was not finite or -1, the seconds
  spent waiting for data, and the sum of the stop votes.
- **evaluation**: `evaluation_of(objective, distribution)` returns a function from batches to metrics.
- **variables as numpy**: `Trainer.saved_variables` are all variables of a checkpoint by TF1 name, which
  `trainers.checkpoints.checkpoint_manager` reads and writes as numpy arrays.
"""
