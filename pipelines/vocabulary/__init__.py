"""Learn the vocabulary of a corpus with Beam: options, distributed word counts, learning, coverage."""
