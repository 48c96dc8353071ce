"""Compare fine-tuning with that of transformers: the same weights, rows and optimizer, without dropout.

Tolerances are relative. The measured differences are printed; use -s to see them.
"""

import argparse
import csv
import dataclasses
import itertools
import json
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from torch_finetuning import converted_model, prepared, their_trajectory, train

from beambert import cli
from beambert.common.word_rules import WordRules
from beambert.tokenizer.normalization import split_words
from beambert.tokenizer.tokenizer import Tokenizer
from beambert.tokenizer.vocabulary import SPECIAL_TOKENS, Vocabulary
from beambert.trainers.commands.finetune import add_arguments, configure
from beambert.trainers.finetuning.batches import EpochOrder
from beambert.trainers.finetuning.finetuning_task import DEV, TRAIN
from beambert.trainers.finetuning.tasks.task_names import module_of
from beambert.trainers.monitoring import metrics_jsonl
from tests.trainers.finetuning.trajectories import CASES, COURSES, TINY, Course, our_trajectory, write_weights

# Tolerances: of the first loss, of all losses and logits, and of the results of the whole command after 40 steps.
FIRST, LATER, COMMAND = 1e-6, 1e-4, 1e-4


def assert_same_course(what, case, ours, theirs):
    first = abs(ours.losses[0] / theirs.losses[0] - 1)
    losses = np.abs(np.array(ours.losses) / theirs.losses - 1).max()
    logits = max(ours.differences(theirs, case))
    size = max(np.abs(their).max() for their in theirs.logits)
    print(
        f"\n{what:<45} loss {theirs.losses[0]:.4f} to {theirs.losses[-1]:.4f}; relative difference of the first "
        f"{first:.1e}, of all {losses:.1e}; logits up to {size:.2f}, largest |difference| {logits:.1e}"
    )
    assert first < FIRST
    assert losses < LATER
    assert logits < LATER * max(size, 1.0)
    assert ours.predictions(case) == theirs.predictions(case)


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("name", CASES)
def test_every_head_trains_as_in_transformers(tmp_path, name, course):
    case, course = CASES[name], COURSES[course]
    rows, answered = case.rows(), case.answered()
    native = write_weights(tmp_path / "native", TINY, case)
    model = converted_model(native, tmp_path / "huggingface", case)
    theirs = their_trajectory(model, case, course, rows, answered)
    ours = our_trajectory(case, course, rows, answered)
    assert_same_course(f"{name}, {course.optimizer}", case, ours, theirs)


@pytest.mark.parametrize("name", ["classification", "token_classification"])
def test_class_weights_are_those_of_pytorch(tmp_path, name):
    case, course, class_weights = CASES[name], COURSES["adamw"], (0.5, 2.0, 0.25)
    rows, answered = case.rows(), case.answered()
    model = converted_model(write_weights(tmp_path / "native", TINY, case), tmp_path / "huggingface", case)
    theirs = their_trajectory(model, case, course, rows, answered, class_weights)
    ours = our_trajectory(case, course, rows, answered, class_weights=class_weights)
    assert_same_course(f"{name} with class weights", case, ours, theirs)


def vocabulary_of(texts, words=400):
    """Return a vocabulary of every character and the most frequent words."""
    counts = Counter(word for text in texts for word in split_words(text, WordRules()))
    characters = sorted({character for word in counts for character in word})
    frequent = sorted(word for word, _ in counts.most_common(words) if len(word) > 1)
    return Vocabulary((*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in characters), *frequent))


def real_config(vocabulary, length):
    return dataclasses.replace(
        TINY, vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, max_position_embeddings=length
    )


def opened(task, *flags):
    """Return a task with its train and dev rows read."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    config = configure(parser.parse_args([task, "--output", "unused", *map(str, flags)]))
    return module_of(task).open_task(config, {TRAIN, DEV}, None)


def compare_on_real_rows(tmp_path, task, texts, case, length, course):
    """Train both models on the rows of a task; return the dev rows and both trajectories."""
    vocabulary = vocabulary_of(texts)
    config = real_config(vocabulary, length)
    rows = {split: task.rows(split, Tokenizer(vocabulary, True), length) for split in (TRAIN, DEV)}
    native = write_weights(tmp_path / "native", config, case, task.labels, vocabulary)
    model = converted_model(native, tmp_path / "huggingface", case)
    theirs = their_trajectory(model, case, course, rows[TRAIN], rows[DEV])
    labels = len(task.labels) if task.labels else None
    ours = our_trajectory(case, course, rows[TRAIN], rows[DEV], config=config, num_labels=labels)
    assert_same_course(f"{task.name}: {len(rows[TRAIN])} and {len(rows[DEV])} real rows", case, ours, theirs)
    return rows[DEV], ours, theirs


# After these steps, the models have learned enough of the rows to predict different labels.
REAL = Course("adamw", steps=96, batch_size=8, learning_rate=1e-3, weight_decay=0.01)


@pytest.mark.parametrize(("name", "folder"), [("mrpc", "MRPC"), ("sst2", "SST-2")])
def test_real_sentences(tmp_path, shared_data, name, folder):
    limits = ("--max_train_samples", 96, "--max_eval_samples", 48)
    task = opened(name, "--data_dir", shared_data / "glue" / folder, *limits)
    texts = [text for example in task.examples[TRAIN] for text in (example.text, example.text_pair or "")]
    rows, *trajectories = compare_on_real_rows(tmp_path, task, texts, CASES["classification"], 128, REAL)
    scores = [task.metrics(DEV, rows, np.stack(trajectory.logits)) for trajectory in trajectories]
    answers = [answer for [answer] in trajectories[0].predictions(CASES["classification"])]
    print(scores[0], Counter(answers))
    assert scores[0] == scores[1]
    assert len(set(answers)) == 2


def test_real_questions(tmp_path, shared_data):
    file = shared_data / "squad" / "xquad.en.json"
    flags = ("--doc_stride", 48, "--max_query_length", 24, "--max_train_samples", 48, "--max_eval_samples", 24)
    task = opened("squad", "--train_file", file, "--predict_file", file, *flags)
    texts = [*task.files[TRAIN].contexts, *(question.text for question in task.files[TRAIN].questions)]
    rows, *trajectories = compare_on_real_rows(tmp_path, task, texts, CASES["span"], 128, REAL)
    answers = []
    for number, trajectory in enumerate(trajectories):
        (tmp_path / str(number)).mkdir()
        task.write_predictions(DEV, rows, trajectory.logits, tmp_path / str(number))
        answers.append(json.loads((tmp_path / str(number) / "predictions.json").read_text(encoding="utf-8")))
    print(task.metrics(DEV, rows, trajectories[0].logits), list(answers[0].values())[:5])
    assert len(answers[0]) == 24
    assert answers[0] == answers[1]


def mrpc_file(path):
    """Return labels and pairs of a file, read without quoting, as its authors wrote it."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(int(row.get("Quality") or 0), row["#1 String"], row["#2 String"]) for row in reader]


def test_the_command_trains_and_answers_as_transformers_does(tmp_path, shared_data):
    """Compare the command with transformers' tokenizer, padding, model, loss, optimizer and schedule.

    The files are read without our code; only the order of rows is ours.
    """
    # The length leaves an even number of tokens besides [CLS] and two [SEP]. With an odd number, the released code and
    # ours give the last token to the first of two long texts. transformers gives it to the second.
    trained, scored, seed, length = 64, 40, 5, 159
    folder = shared_data / "glue" / "MRPC"
    rows = mrpc_file(folder / "train.tsv")[:trained]
    vocabulary = vocabulary_of([text for _, *pair in rows for text in pair])
    torch.manual_seed(3)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.3,
            id2label={0: "0", 1: "1"},
        )
    )
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_bytes(vocabulary.to_bytes())
    tokenizer = transformers.BertTokenizer(str(tmp_path / "model" / "vocab.txt"), do_lower_case=True)
    tokenizer.save_pretrained(tmp_path / "model")

    command = ["finetune", "mrpc", "--data_dir", str(folder), "--init_checkpoint", str(tmp_path / "model")]
    command += ["--output", str(tmp_path / "output"), "--do_train", "--do_eval", "--do_predict", "--seed", str(seed)]
    command += ["--max_train_samples", str(trained), "--max_eval_samples", str(scored)]
    command += ["--max_predict_samples", str(scored), "--max_seq_length", str(length), "--train_batch_size", "8"]
    command += ["--num_train_epochs", "5", "--learning_rate", "1e-3", "--warmup_proportion", "0"]
    assert cli.main([*command, "--optimizer", "adamw"]) == 0

    def encoded(some, with_labels=True):
        batch = tokenizer(
            [row[1] for row in some],
            [row[2] for row in some],
            truncation=True,
            max_length=length,
            padding=True,
            return_tensors="pt",
        )
        return {**batch, "labels": torch.tensor([row[0] for row in some])} if with_labels else dict(batch)

    course = Course("adamw", steps=40, batch_size=8, learning_rate=1e-3, weight_decay=0.01)
    order = EpochOrder(trained, seed)
    chosen = [order.rows(update * 8, 8) for update in range(course.steps)]
    losses = train(prepared(model), course, [encoded([rows[row] for row in batch]) for batch in chosen])
    model.eval()
    with torch.no_grad():
        dev = model(**encoded(mrpc_file(folder / "dev.tsv")[:scored]))
        test = model(**encoded(mrpc_file(folder / "test.tsv")[:scored], with_labels=False))

    output = tmp_path / "output"
    results = json.loads((output / "eval_results.json").read_text(encoding="utf-8"))
    probabilities = np.loadtxt(output / "test_results.tsv")
    theirs = test.logits.softmax(-1).numpy()
    logged = [line for line in metrics_jsonl.read(output / metrics_jsonl.FILE_NAME) if line["split"] == "train"]
    print(
        f"\nbeambert finetune mrpc: losses {losses[0]:.4f} to {losses[-1]:.4f}; eval_loss {results['eval_loss']:.6f}, "
        f"theirs {dev.loss:.6f}; probabilities of {scored} test rows, largest |difference| "
        f"{np.abs(probabilities - theirs).max():.1e}, {theirs.argmax(-1).mean():.0%} of them of label 1"
    )
    # A line of the log has the mean over the steps since the previous line.
    steps = [0, *(line["step"] for line in logged)]
    means = [np.mean(losses[begin:end]) for begin, end in itertools.pairwise(steps)]
    assert steps[-1] == course.steps
    assert [line["loss"] for line in logged] == pytest.approx(means, rel=COMMAND)
    assert results["eval_loss"] == pytest.approx(dev.loss.item(), rel=COMMAND)
    labels = np.array([row[0] for row in mrpc_file(folder / "dev.tsv")[:scored]])
    assert results["eval_accuracy"] == pytest.approx(np.mean(dev.logits.argmax(-1).numpy() == labels))
    np.testing.assert_allclose(probabilities, theirs, atol=COMMAND)
    assert (probabilities.argmax(-1) == theirs.argmax(-1)).all()
    assert 0.1 < theirs.argmax(-1).mean() < 0.9
