"""Fine-tune a model on a task: flags, checks, batches, losses, one run or a sweep of several."""
