"""Run pipelines: the local runner and its worker processes, Dataflow and Flink jobs, their output, and memory."""
