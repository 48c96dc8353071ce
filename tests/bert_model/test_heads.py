"""Test that a head is one object: no other code names it, and files identify it."""

import ast

from beambert.bert_model.heads import ALL_HEADS, HEADS
from tests.conftest import ROOT

# A fine-tuning task selects its head, and --problem of csv has the same words as values.
TASKS = ("trainers/finetuning/tasks", "trainers/finetuning/options.py", "trainers/run_report/task_sections.py")


def test_only_tasks_name_heads():
    for folder in ("bert_model", "trainers", "adaptation", "deploy"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("bert_model/heads/", *TASKS)):
                constants = (
                    node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
                )
                assert not {node.value for node in constants} & set(HEADS), name


def test_the_record_of_a_model_identifies_its_head():
    records = [tuple(head.recorded.values()) for head in ALL_HEADS.values()]
    assert len(set(records)) == len(ALL_HEADS)
    assert HEADS["multi_label"].recorded == {"task": "classification", "multi_label": True}


def test_the_last_head_that_matches_a_config_is_that_of_the_model():
    def head_of(problem_type, num_labels):
        return [
            name for name, head in HEADS.items() if head.problem_type and head.matches_config(problem_type, num_labels)
        ][-1]

    assert head_of("single_label_classification", 3) == head_of(None, 3) == head_of(None, None) == "classification"
    # By default, transformers treats a single class as regression.
    assert head_of(None, 1) == head_of("single_label_classification", 1) == head_of("regression", 3) == "regression"
    assert head_of("multi_label_classification", 1) == head_of("multi_label_classification", 3) == "multi_label"
