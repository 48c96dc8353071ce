"""An example of a task over texts."""

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class TextExample:
    """A text, or a pair of texts, with its label.

    Attributes:
        text: as the file has it.
        text_pair: the second text, None where there is one alone.
        label: name of the class; of several classes their names, possibly none; for regression a finite number; None
            where the file does not say.
        where: for messages and the report, such as "dev.tsv, row 17 (line 18)".
        index: what a submission calls the example; "" where files of the task have no such column.
    """

    text: str
    text_pair: str | None = None
    label: str | tuple[str, ...] | float | None = None
    where: str = ""
    index: str = ""
