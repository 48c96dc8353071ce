"""Report a run while it trains: the progress line, `metrics.jsonl`, TensorBoard, throughput, MLM samples."""
