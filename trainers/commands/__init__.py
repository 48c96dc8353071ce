"""Define the commands that train a model (pretrain, finetune, tune) and those that use or convert one."""
