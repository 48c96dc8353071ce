"""An example of a text task."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label.

    Attributes:
        text: the text, as in the file.
        text_pair: the second text; None for a single text.
        label: class name; tuple of label names for multi-label tasks; finite number for regression; None where the file
            has no label.
        where: location for messages and the report, such as "dev.tsv, row 17 (line 18)".
        index: id of the example in a submission; "" where the task's files have no such column.
    """

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None
    where: str = ""
    index: str = ""
