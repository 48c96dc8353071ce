"""Choose the number of partitions of a corpus. Without imports, so that estimates need no dependencies."""

# Maximum bytes of text in a partition.
PARTITION_BYTES = 64 << 20


def choose_num_partitions(input_bytes: int) -> int:
    """Return the number of partitions for a corpus of `input_bytes` of text.

    A partition has at most 64 MiB, so that it fits in memory with its instances. A corpus of up to 1 GiB is divided
    into up to 16 partitions of about 2 MiB or more. That is enough for several processes, and every document still has
    many others to be paired with.
    """
    return max(-(-input_bytes // PARTITION_BYTES), min(16, -(-input_bytes // (2 << 20))), 1)
