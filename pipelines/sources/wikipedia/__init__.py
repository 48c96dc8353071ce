"""Read Wikipedia: dumps as they are published, wikitext with its templates, and WikiExtractor's output."""
