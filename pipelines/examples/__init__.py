"""Turn a corpus into shards of serialized examples with statistics, and read examples back as text."""
