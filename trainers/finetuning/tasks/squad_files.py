"""Read and validate files in the JSON format of SQuAD 1.1 and 2.0.

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "is_impossible": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

`is_impossible` is a field of SQuAD 2.0 only. `plausible_answers` is ignored, as in the released code.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.utf8_files import read_text


class Answer(NamedTuple):
    """A reference answer.

    Attributes:
        text: text of the answer, as in the context.
        start: character offset in the context; None where the file has none.
    """

    text: str
    start: int | None


class Question(NamedTuple):
    """A question about a context.

    Attributes:
        id: id of the question, the key of its prediction.
        text: the question.
        context: index of its context in `SquadFile.contexts`.
        answers: reference answers; empty for a question without an answer, and where the file has no answers.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...]


@dataclasses.dataclass(frozen=True)
class SquadFile:
    """The content of a file.

    Attributes:
        path: path of the file.
        contexts: distinct contexts.
        questions: questions in the order of the file.
        labeled: whether the file has answers; a test file has none.
    """

    path: Path
    contexts: tuple[str, ...]
    questions: tuple[Question, ...]
    labeled: bool

    def first(self, count: int | None) -> "SquadFile":
        """Return the first `count` questions with their contexts; all for None."""
        if count is None or count >= len(self.questions):
            return self
        questions = self.questions[:count]
        contexts = self.contexts[: 1 + max((question.context for question in questions), default=-1)]
        return dataclasses.replace(self, contexts=contexts, questions=questions)

    def where(self, question: int) -> str:
        """Return the location of a question, for messages and the report."""
        return f"{self.path.name}, question {self.questions[question].id}"

    def digest(self) -> str:
        """Return the hex digest of the contexts, questions and answers."""
        content = json.dumps([self.contexts, self.questions, self.labeled])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def read_squad(path: Path, *, version_2: bool, training: bool = False) -> SquadFile:
    """Read a file. Equal contexts are stored once.

    Args:
        path: path of the file.
        version_2: whether questions may have no answer: empty `answers`, and `is_impossible` true where present.
        training: whether the questions are for training, so that answers need `answer_start`; the first of several
            answers is the target. Otherwise the ids must be distinct.

    Raises:
        TaskDataError: the file is missing, is not valid JSON of this format or has no questions, or a question is
            incomplete or inconsistent.
    """
    articles = _field(_parse(path), "data", list, path.name)
    reader = _Reader(path.name, version_2, training)
    for number, article in enumerate(articles, start=1):
        reader.read_article(number, article)
    if not reader.questions:
        raise TaskDataError(f"{path} has no questions: use a file in SQuAD's JSON format")
    return SquadFile(path, tuple(reader.contexts), tuple(reader.questions), reader.labeled)


def _parse(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskDataError(
            f"{path}, line {error.lineno}, column {error.colno}: invalid JSON ({error.msg}): fix or download it again"
        ) from error
    except ValueError as error:
        # An integer of more digits than Python converts.
        raise TaskDataError(f"{path}: a number has too many digits: fix it or download the file again") from error
    except RecursionError as error:
        raise TaskDataError(f"{path} is nested too deeply: use a file in SQuAD's JSON format") from error


_KINDS = {str: "a string", int: "an integer", list: "a list", dict: "an object", bool: "true or false"}


def _field(content: Any, key: str, kind: type, location: str) -> Any:
    """Return a field of an object, and check its type."""
    if not isinstance(content, dict):
        raise TaskDataError(f"{location}: {_short(content)} is not an object with {key!r}: fix the file")
    if key not in content:
        raise TaskDataError(f"{location}: {key!r} is missing: add it, as in SQuAD's files")
    value = content[key]
    if type(value) is not kind:
        raise TaskDataError(f"{location}: {key!r} is {_short(value)}, not {_KINDS[kind]}: fix the file")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


class _Reader:
    """Collects contexts and questions, article by article."""

    def __init__(self, name: str, version_2: bool, training: bool) -> None:
        self.name, self.version_2, self.training = name, version_2, training
        self.contexts: dict[str, int] = {}
        self.questions: list[Question] = []
        self.labeled = False
        self.ids: set[str] = set()
        self.without_answers: str | None = None  # Location of the first question without the field.

    def read_article(self, number: int, article: Any) -> None:
        location = f"{self.name}, article {number}"
        if isinstance(article, dict) and "title" in article:
            location += f" {_short(article['title'])}"
        for part, paragraph in enumerate(_field(article, "paragraphs", list, location), start=1):
            in_article = f"{location}, paragraph {part}"
            text = _field(paragraph, "context", str, in_article)
            context = self.contexts.setdefault(text, len(self.contexts))
            for question in _field(paragraph, "qas", list, in_article):
                self._read_question(question, text, context, in_article)

    def _read_question(self, question: Any, context: str, number: int, location: str) -> None:
        question_id = _field(question, "id", str, location)
        location = f"{location}, question {question_id}"
        text = _field(question, "question", str, location)
        if question_id in self.ids and not self.training:
            raise TaskDataError(f"{location}: duplicate id, which predictions are keyed by: change one of them")
        self.ids.add(question_id)
        answers = self._answers(question, context, location)
        self.questions.append(Question(question_id, text, number, answers))

    def _answers(self, question: dict[str, Any], context: str, location: str) -> tuple[Answer, ...]:
        if "answers" not in question and not self.training:
            if self.labeled:
                raise TaskDataError(
                    f"{location}: 'answers' is missing, while other questions have it: add it, or remove it everywhere"
                )
            self.without_answers = self.without_answers or location
            return ()
        if self.without_answers:
            raise TaskDataError(f"{self.without_answers}: 'answers' is missing, while other questions have it: add it")
        self.labeled = True
        answers = tuple(
            self._answer(answer, context, location) for answer in _field(question, "answers", list, location)
        )
        if self.version_2:
            if "is_impossible" in question and _field(question, "is_impossible", bool, location) is bool(answers):
                contradiction = "is true, but it has answers" if answers else "is false, but it has no answers"
                raise TaskDataError(f"{location}: 'is_impossible' {contradiction}: change one of them")
        elif not answers:
            raise TaskDataError(f"{location} has no answers: use --version_2_with_negative for data like SQuAD 2.0")
        return answers

    def _answer(self, answer: Any, context: str, location: str) -> Answer:
        text = _field(answer, "text", str, location)
        if "answer_start" not in answer and not self.training:
            return Answer(text, None)
        start = _field(answer, "answer_start", int, location)
        if not 0 <= start <= start + len(text) <= len(context):
            raise TaskDataError(
                f"{location}: answer {_short(text)} at {start} is outside its context of {len(context)} characters: "
                "correct answer_start, a character offset from 0"
            )
        if self.training and not text.strip():
            raise TaskDataError(f"{location}: the answer at {start} is empty: remove the question")
        return Answer(text, start)
