"""The options of `beambert extend-vocab`."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from beambert.bert_model.checkpoints import writer
from beambert.bert_model.checkpoints.variable_names import PRETRAINING, TASKS
from beambert.common.command_line import options
from beambert.common.command_line.options import Flag, PositiveInt, VocabularySize
from beambert.common.command_line.path_flags import ANY_PATH, LOCAL_OUTPUT_DIRECTORY, LOCAL_PATH
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.tokenizer.vocabulary import VocabularyError
from beambert.trainers.options import ModelOptions


@dataclass(frozen=True, kw_only=True)
class ExtendVocabOptions(ModelOptions):
    """The options of `beambert extend-vocab`.

    Attributes:
        model: A model directory, or a checkpoint or zip archive of the released BERT; the format is detected.
        input: Input files or quoted glob patterns, as for build; the text is neither cleaned nor deduplicated. With
            --replace, the text only measures the vocabularies.
        read: Options of reading the input.
        field_flags: flags of `read` that name a field, with their values, for messages.
        num_tokens: Number of words to add.
        min_count: Minimum occurrences of a word to add.
        fill_unused: Replace [unusedN] tokens instead of adding rows, so that the vocabulary size stays.
        replace: New vocabulary, a vocab.txt or tokenizer.json; tokens of both vocabularies keep their embeddings.
        output: Output directory; must be new or empty.
        to: Output format.
        task: Task head of MODEL; required if the files do not record it, as for a TF1 checkpoint of a token classifier
            (default: as detected).

    Raises:
        VocabularyError: a value is out of range, or flags are missing, or exclude each other.
    """

    model: Annotated[str, Flag("", type=LOCAL_PATH, metavar="MODEL")]
    input: Annotated[list[str], Flag("input", type=ANY_PATH, metavar="GLOB")] = dataclasses.field(default_factory=list)
    read: ReadOptions = dataclasses.field(default_factory=ReadOptions)
    field_flags: tuple[str, ...] = ()
    num_tokens: Annotated[VocabularySize | None, Flag("vocabulary")] = None
    min_count: Annotated[PositiveInt, Flag("vocabulary")] = 3
    fill_unused: Annotated[bool, Flag("vocabulary")] = False
    replace: Annotated[str | None, Flag("vocabulary", type=LOCAL_PATH, metavar="VOCAB")] = None
    output: Annotated[str, Flag("output", required=True, type=LOCAL_OUTPUT_DIRECTORY, metavar="DIR")]
    to: Annotated[str, Flag("output", choices=writer.KINDS)] = "native"
    task: Annotated[str | None, Flag("task", choices=(PRETRAINING, *TASKS))] = None

    def __post_init__(self) -> None:
        options.check(self, VocabularyError)
        if self.replace is not None:
            flags = {"--num_tokens": self.num_tokens is not None, "--fill_unused": self.fill_unused}
            if excluded := next((flag for flag, is_given in flags.items() if is_given), None):
                raise VocabularyError(f"{excluded} cannot be combined with --replace; omit one of them")
        elif not self.input and (self.num_tokens is not None or not self.added_tokens):
            raise VocabularyError(
                "--input is missing; give files or quoted patterns, such as --input 'texts/*.txt', a vocabulary with "
                "--replace, or tokens with --added_tokens"
            )
        elif self.input and self.num_tokens is None:
            raise VocabularyError("--num_tokens is missing; give the number of words to add, such as 1000")
