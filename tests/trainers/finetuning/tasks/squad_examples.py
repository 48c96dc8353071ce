"""SQuAD files for tests."""

import json
from pathlib import Path

from beambert.trainers.finetuning.options import FinetuneOptions
from beambert.trainers.finetuning.tasks.spans.squad_files import Answer, Question, SquadFile


def arguments(**given):
    """Return the configuration of the task with these options."""
    return FinetuneOptions(output="out", task="squad", **given)


def squad_file(contexts, questions):
    """Return a `SquadFile` of contexts and questions (text, context number, [(answer, start), ...])."""
    return SquadFile(
        Path("made-up.json"),
        tuple(contexts),
        tuple(
            Question(f"q{number}", text, context, tuple(Answer(*answer) for answer in answers))
            for number, (text, context, answers) in enumerate(questions)
        ),
        labeled=True,
    )


def plain(file):
    """Return the contexts and questions in the form of the reference's arguments."""
    return list(file.contexts), [(q.text, q.context, [tuple(answer) for answer in q.answers]) for q in file.questions]


def write_squad(path, *paragraphs, title="Tea"):
    """Write paragraphs (context, [question object, ...]) as one article, and return the path."""
    parts = [{"context": context, "qas": questions} for context, questions in paragraphs]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": title, "paragraphs": parts}]}), encoding="utf-8")
    return path
