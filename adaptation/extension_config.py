"""The configuration of `beambert extend-vocab`."""

from dataclasses import dataclass

from beambert.tokenizer.vocabulary import VocabularyError
from beambert.trainers.commands.model_flags import ModelConfig


@dataclass(frozen=True, kw_only=True)
class ExtendVocabConfig(ModelConfig):
    """The configuration of `beambert extend-vocab`; the help of each flag describes it.

    Raises:
        VocabularyError: flags are missing, or exclude each other.
    """

    model: str
    output: str
    input: tuple[str, ...] = ()
    num_tokens: int | None = None
    min_count: int = 3
    fill_unused: bool = False
    replace: str | None = None
    to: str = "native"
    task: str | None = None
    input_format: str = "auto"
    encoding: str = "utf-8"
    text_field: str | None = None

    def __post_init__(self) -> None:
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

    @property
    def field_flags(self) -> list[str]:
        """Return the field flags of the command line, each with its value."""
        return [f"--text_field {self.text_field}"] if self.text_field else []
