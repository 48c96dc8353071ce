from collections.abc import Sequence

import numpy as np

def parse(
    records: Sequence[bytes], outputs: Sequence[tuple[bytes, bool, np.ndarray]], ragged: bool
) -> tuple[int, int, int, int] | None: ...
