"""Read plain text: documents between blank lines, sentences, books."""
