"""Files in the JSON of SQuAD 1.1 and 2.0, and the errors in them.

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "is_impossible": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

`is_impossible` stands in SQuAD 2.0 alone. `plausible_answers` is not read, as the released code does not read it.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from trainers.errors import TaskDataError
from trainers.finetuning.tasks.utf8_files import read_text


class Answer(NamedTuple):
    """An answer that people gave.

    Attributes:
        text: as it stands in the context, or should.
        start: where in the context, in characters; None where the file does not say.
    """

    text: str
    start: int | None


class Question(NamedTuple):
    """A question about a context.

    Attributes:
        id: what predictions are kept under.
        text: the question.
        context: number of its context in `SquadFile.contexts`.
        answers: empty for a question without an answer, and where answers are not known.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...]


@dataclasses.dataclass(frozen=True)
class SquadFile:
    """The content of a file.

    Attributes:
        path: of the file.
        contexts: each once, however many questions it has.
        questions: in the order of the file.
        labeled: whether the file has answers; a test file has none.
    """

    path: Path
    contexts: tuple[str, ...]
    questions: tuple[Question, ...]
    labeled: bool

    def first(self, count: int | None) -> "SquadFile":
        """Return a file with the first questions, all for None, and their contexts."""
        if count is None or count >= len(self.questions):
            return self
        questions = self.questions[:count]
        contexts = self.contexts[: 1 + max((question.context for question in questions), default=-1)]
        return dataclasses.replace(self, contexts=contexts, questions=questions)

    def where(self, question: int) -> str:
        """Return the name of a question for a message or a report."""
        return f"{self.path.name}, question {self.questions[question].id}"

    def digest(self) -> str:
        """Return the hex digest of contexts, questions and answers."""
        content = json.dumps([self.contexts, self.questions, self.labeled])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def read_squad(path: Path, *, version_2: bool, training: bool = False) -> SquadFile:
    """Read a file.

    A context that stands in the file twice is kept once, and its number is that of the first.

    Args:
        path: of the file.
        version_2: whether questions may have no answer: empty `answers`, and `is_impossible` true where it stands.
        training: whether every question must have what is trained on: answers with `answer_start`, or be without one.
            Of several answers the first is trained on. A file to be predicted for must have different ids.

    Raises:
        TaskDataError: the file is not there, is no such JSON, has no questions, or one of them lacks something or
            contradicts itself.
    """
    articles = _field(_parse(path), "data", list, path.name)
    reader = _Reader(path.name, version_2, training)
    for number, article in enumerate(articles, start=1):
        reader.read_article(number, article)
    if not reader.questions:
        raise TaskDataError(f"{path} has no questions; give a file in the JSON of SQuAD that has some")
    return SquadFile(path, tuple(reader.contexts), tuple(reader.questions), reader.labeled)


def _parse(path: Path) -> Any:
    text = read_text(path)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TaskDataError(
            f"{path}, line {error.lineno}, column {error.colno}: no JSON ({error.msg}); mend it or fetch it again"
        ) from error
    except ValueError as error:
        # An integer of more digits than Python converts.
        raise TaskDataError(f"{path}: a number has too many digits; mend it or fetch the file again") from error
    except RecursionError as error:
        raise TaskDataError(f"{path} is nested too deeply; give a file in the JSON of SQuAD") from error


_KINDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object", bool: "true or false"}


def _field(holder: Any, key: str, kind: type, place: str) -> Any:
    """Return a value of an object, of the one type that it must have."""
    if not isinstance(holder, dict):
        raise TaskDataError(f"{place}: {_short(holder)} stands where an object with {key!r} should; mend it")
    if key not in holder:
        raise TaskDataError(f"{place}: {key!r} is missing; add it, as in SQuAD's own files")
    value = holder[key]
    if type(value) is not kind:
        raise TaskDataError(f"{place}: {key!r} is {_short(value)} and should be {_KINDS[kind]}; mend it")
    return value


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


class _Reader:
    """Collect contexts and questions, article by article."""

    def __init__(self, name: str, version_2: bool, training: bool) -> None:
        self.name, self.version_2, self.training = name, version_2, training
        self.contexts: dict[str, int] = {}
        self.questions: list[Question] = []
        self.labeled = False
        self.ids: set[str] = set()
        self.without_answers: str | None = None  # The first such place.

    def read_article(self, number: int, article: Any) -> None:
        place = f"{self.name}, article {number}"
        if isinstance(article, dict) and "title" in article:
            place += f" {_short(article['title'])}"
        for part, paragraph in enumerate(_field(article, "paragraphs", list, place), start=1):
            in_article = f"{place}, paragraph {part}"
            text = _field(paragraph, "context", str, in_article)
            context = self.contexts.setdefault(text, len(self.contexts))
            for question in _field(paragraph, "qas", list, in_article):
                self._read_question(question, text, context, in_article)

    def _read_question(self, question: Any, context: str, number: int, place: str) -> None:
        question_id = _field(question, "id", str, place)
        place = f"{place}, question {question_id}"
        text = _field(question, "question", str, place)
        if question_id in self.ids and not self.training:
            raise TaskDataError(f"{place}: the id stands in the file twice, and predictions go by it; change one")
        self.ids.add(question_id)
        answers = self._answers(question, context, place)
        self.questions.append(Question(question_id, text, number, answers))

    def _answers(self, question: dict[str, Any], context: str, place: str) -> tuple[Answer, ...]:
        if "answers" not in question and not self.training:
            if self.labeled:
                raise TaskDataError(f"{place}: 'answers' is missing, which others have; add it, or leave out all")
            self.without_answers = self.without_answers or place
            return ()
        if self.without_answers:
            raise TaskDataError(f"{self.without_answers}: 'answers' is missing, which others have; add it")
        self.labeled = True
        answers = tuple(self._answer(answer, context, place) for answer in _field(question, "answers", list, place))
        if self.version_2:
            if "is_impossible" in question and _field(question, "is_impossible", bool, place) is bool(answers):
                contradiction = "is true, yet it has answers" if answers else "is false, yet it has no answers"
                raise TaskDataError(f"{place}: 'is_impossible' {contradiction}; change one of them")
        elif not answers:
            raise TaskDataError(f"{place} has no answers; for data like SQuAD 2.0 give --version_2_with_negative")
        return answers

    def _answer(self, answer: Any, context: str, place: str) -> Answer:
        text = _field(answer, "text", str, place)
        if "answer_start" not in answer and not self.training:
            return Answer(text, None)
        start = _field(answer, "answer_start", int, place)
        if not 0 <= start <= start + len(text) <= len(context):
            raise TaskDataError(
                f"{place}: the answer {_short(text)} at {start} is outside its context of {len(context)} characters; "
                "correct answer_start, which counts characters from 0"
            )
        if self.training and not text.strip():
            raise TaskDataError(f"{place}: the answer at {start} is empty; take the question out")
        return Answer(text, start)
