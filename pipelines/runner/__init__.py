"""Run pipelines: the local runner and its worker processes, Dataflow and Flink jobs, progress, locks and memory."""
