"""Define the data commands of the CLI (build, corpus, pretraining-data, inspect, vocab) and their flags."""
