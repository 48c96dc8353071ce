"""Run beambert elsewhere, and estimate what that costs: Dataflow, Flink, Cloud TPU, images, Kubernetes.

The commands that run on this machine are in `pipelines.commands` and `trainers.commands`.
"""
