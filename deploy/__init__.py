"""Run beambert elsewhere, and estimate what that costs: Dataflow, Flink, Cloud TPU, images, Kubernetes.

The commands that run on this machine are in `beambert.pipelines.commands` and `beambert.trainers.commands`.
"""
