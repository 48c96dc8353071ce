"""The number of partitions of a corpus; imports nothing, so that a plan can be made on any machine."""

# Text of a partition at most, in bytes.
PARTITION_BYTES = 64 << 20


def choose_num_partitions(input_bytes: int) -> int:
    """Return the number of partitions for a corpus of N bytes of text.

    At most 64 MiB a partition, so that one fits in memory with its instances; below that up to 16, of at least 2 MiB
    each, so that several processes have work while every document still finds many others to be paired with.
    """
    return max(-(-input_bytes // PARTITION_BYTES), min(16, -(-input_bytes // (2 << 20))), 1)
