"""Monitor a run: progress line, `metrics.jsonl`, TensorBoard, throughput, masked-LM samples."""
