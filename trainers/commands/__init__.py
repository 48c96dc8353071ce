"""Define the training commands of the CLI (pretrain, finetune, tune) and those that use a trained model."""
