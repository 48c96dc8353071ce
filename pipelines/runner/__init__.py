"""Run a pipeline: the embedded engine with its worker processes, Dataflow and Flink jobs, progress, locks, memory."""
