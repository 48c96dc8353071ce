"""Run training steps on devices: one package per library.

A backend provides, for `trainers.training.loop` and the runs of `trainers.pretraining` and `trainers.finetuning`:

- **devices**: `Distribution.open(strategy, ...)` opens them. `replicas` is their number, `is_chief` whether this
  process writes the files, `several_processes` whether other processes train too. `batches(make)` reads the input shard
  of each process, `barrier()` waits for all processes.
- **the compiled step**: `Trainer(objective, config, distribution)` holds variables, optimizer and step counter.
  `make_loop(iterator)` returns a function of (iterator, first step, number of steps, stop vote). It runs these steps
  without leaving the device, and returns the metric sums, the first non-finite step or -1, the seconds spent waiting
  for data, and the sum of the stop votes.
- **evaluation**: `evaluation_of(objective, distribution)` returns a function from batches to metrics.
- **variables**: `Trainer.saved_variables` are all variables of a checkpoint by TF1 name, which
  `trainers.checkpoints.checkpoint_manager` reads and writes.
"""
