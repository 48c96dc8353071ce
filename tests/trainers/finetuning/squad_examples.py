"""SQuAD files for tests."""

import argparse
import json
from pathlib import Path

from trainers.finetuning.span_task import add_arguments
from trainers.finetuning.squad_files import Answer, Question, SquadFile


def arguments(**given):
    """What `add_arguments` parses, and the common flags that the task reads."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args([])
    common = {"data_dir": None, "max_train_samples": None, "max_eval_samples": None, "max_predict_samples": None}
    vars(args).update(common | given)
    return args


def squad_file(contexts, questions):
    """A `SquadFile` of contexts and of (question, context number, [(answer, start), ...])."""
    return SquadFile(
        Path("made-up.json"),
        tuple(contexts),
        tuple(
            Question(f"q{number}", text, context, tuple(Answer(*answer) for answer in answers))
            for number, (text, context, answers) in enumerate(questions)
        ),
        labelled=True,
    )


def plain(file):
    """Contexts and questions as the reference takes them."""
    return list(file.contexts), [(q.text, q.context, [tuple(answer) for answer in q.answers]) for q in file.questions]


def write_squad(path, *paragraphs, title="Tea"):
    """Writes (context, [question object, ...]) as one article."""
    parts = [{"context": context, "qas": questions} for context, questions in paragraphs]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": title, "paragraphs": parts}]}), encoding="utf-8")
    return path
