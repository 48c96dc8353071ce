"""Learn the vocabulary of a corpus: options, word counts by groups of words, learning, coverage."""
