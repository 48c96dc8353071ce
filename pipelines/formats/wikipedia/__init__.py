"""Read Wikipedia: published dumps, wikitext with templates, and WikiExtractor's output."""
