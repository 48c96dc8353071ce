from collections.abc import Callable

class Encoder:
    def __init__(
        self,
        tokens: list[str],
        unknown_id: int,
        replace_character: Callable[[int], tuple[str | None, bool]],
        split_chunk: Callable[[str], list[tuple[str, list[int]]]],
    ) -> None: ...
    def encode(self, texts: list[str], with_offsets: bool) -> tuple[bytearray, bytearray, bytearray | None]: ...
