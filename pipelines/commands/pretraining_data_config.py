"""Define the configuration of job 2: the corpus and the options of `beambert pretraining-data`."""

from dataclasses import dataclass

from beambert.pipelines.examples import array_record_files
from beambert.pipelines.instances.options import PretrainingDataOptions


@dataclass(frozen=True)
class PretrainingDataConfig:
    """The configuration of job 2.

    Attributes:
        corpus_directory: Value of --input, the corpus.
        output: Value of --output.
        vocab_file: Vocabulary to use instead of the corpus's own, or None.
        options: Options of the examples, except those that the corpus determines; `dataset.json` records them.
        ignore_memory_estimate: Whether to run even if the estimated memory exceeds the available memory.

    Raises:
        DatasetError: The package of the format is not installed.
    """

    corpus_directory: str
    output: str
    vocab_file: str | None
    options: PretrainingDataOptions
    ignore_memory_estimate: bool = False

    def __post_init__(self) -> None:
        if self.options.format == "array_record":
            array_record_files.require_package()
