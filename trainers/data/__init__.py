"""Read pretraining shards as batches: example order, record parsing, dynamic masking, verification."""
