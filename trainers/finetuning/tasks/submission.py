"""Write predictions: `test_results.tsv` of run_classifier.py, files for the GLUE server, and readable tables.

Letters in shapes: N examples, n classes.
"""

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

# The range of scores of STS-B, the one regression task of GLUE.
LOWEST_SCORE, HIGHEST_SCORE = 0.0, 5.0


def test_results(values: np.ndarray) -> bytes:
    """Return `test_results.tsv` as run_classifier.py writes it: one line per example, without a header.

    Args:
        values: probabilities [N, n], tab-separated in the file, or scores [N].
    """
    rows = values.reshape(len(values), -1).astype(np.float32)
    return "".join("\t".join(map(str, row)) + "\n" for row in rows).encode()


def glue_submission(indices: Sequence[str], predictions: Sequence[str] | np.ndarray) -> bytes:
    """Return the file of one task for the GLUE server: columns index and prediction.

    Args:
        indices: N ids of the examples in the test file; their positions from 0 where the file has no ids.
        predictions: N labels as in the training file, or scores float [N], which are clipped to 0 to 5.
    """
    if isinstance(predictions, np.ndarray):
        predictions = [str(score) for score in predictions.astype(np.float32).clip(LOWEST_SCORE, HIGHEST_SCORE)]
    lines = [
        f"{index or position}\t{prediction}\n"
        for position, (index, prediction) in enumerate(zip(indices, predictions, strict=True))
    ]
    return "".join(["index\tprediction\n", *lines]).encode()


def readable_predictions(columns: Sequence[str], rows: Iterable[Sequence[str | float]]) -> bytes:
    """Return a tab-separated table with a header.

    Runs of white space in a text become one space, so that no cell contains a tab or a newline. A cell with a quotation
    mark is quoted as in CSV. Numbers have six significant digits.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, delimiter="\t", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [" ".join(cell.split()) if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows
    )
    return lines.getvalue().encode("utf-8", "replace")
