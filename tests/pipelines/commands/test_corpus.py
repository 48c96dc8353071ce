"""Tests of `beambert corpus`: deduplication across documents, weights of inputs and languages, and resuming."""

import itertools
import json
import random
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from beambert import cli
from beambert.pipelines import dataset
from beambert.pipelines.corpus import corpus_manifest
from tests.every_output import corpus_rows, digests, rejected

WORDS = ["".join(letters) for letters in itertools.product("bdfgklmnprst", "aeiou", "bdfgklmnprst")]


def corpus(output: Path, *flags: object) -> dict:
    argv = ["corpus", "--output", output, "--vocab_size", "300", "--num_partitions", "3", *flags]
    assert cli.main(list(map(str, argv))) == 0
    return json.loads((output / "corpus.json").read_text())


def documents(output: Path) -> dict[str, dict]:
    """Return {title: document} of all shards of a corpus."""
    return {row["title"]: row for row in corpus_rows(output)}


def write_lines(path: Path, texts: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps({"title": title, "text": text}) + "\n" for title, text in texts.items()))
    return path


def prose(rng: random.Random, paragraphs: int) -> list[str]:
    """Return paragraphs of two sentences each."""
    return [
        " ".join(f"{' '.join(rng.choices(WORDS, k=12)).capitalize()}." for _ in range(2)) for _ in range(paragraphs)
    ]


def test_near_duplicates_are_dropped_on_request_only(tmp_path):
    rng = random.Random(1)
    texts = {}
    for number in range(12):
        text = prose(rng, 30)
        texts[f"{number}"] = "\n".join(text)
        texts[f"{number} again"] = "\n".join([*text[:29], *prose(rng, 1)])
    path = write_lines(tmp_path / "a.jsonl", texts)
    assert corpus(tmp_path / "all", "--input", path)["counts"]["documents_rejected"] == {}
    manifest = corpus(tmp_path / "one", "--input", path, "--drop_near_duplicates")
    assert manifest["counts"]["documents_rejected"] == {"near_duplicate": 12}
    kept = documents(tmp_path / "one")
    assert Counter(title.split()[0] for title in kept) == {str(number): 1 for number in range(12)}
    ids = {row["id"] for row in kept.values()}
    assert all(line["like"] in ids and line["like"] < line["id"] for line in rejected(tmp_path / "one"))


def test_a_repeated_paragraph_is_kept_in_one_document(tmp_path):
    rng = random.Random(2)
    shared = prose(rng, 1)[0]
    own = {f"{number}": prose(rng, 3) for number in range(30)}
    texts = {
        title: "\n".join([*text[:2], shared.upper(), "See also the table.", text[2]]) for title, text in own.items()
    }
    texts["nothing else"] = shared
    path = write_lines(tmp_path / "a.jsonl", texts)
    manifest = corpus(tmp_path / "out", "--input", path, "--drop_repeated_paragraphs")
    found = documents(tmp_path / "out")
    with_it = [title for title, row in found.items() if any(s.upper() in shared.upper() for s in row["sentences"])]
    assert len(with_it) == 1
    for title, row in found.items():
        text = " ".join(row["sentences"])
        # Short paragraphs are kept in every document.
        assert title == "nothing else" or "See also the table." in text
        assert all(paragraph in text for paragraph in own.get(title, ()))
    counts = manifest["counts"]
    assert counts["paragraphs_cleaned"].get("repeated_paragraph", 0) + len(with_it) + sum(
        counts["documents_rejected"].values()
    ) == len(texts)
    assert ("nothing else" in found) == (with_it == ["nothing else"])
    lines = [line for line in rejected(tmp_path / "out") if line["reason"] == "repeated_paragraph"]
    assert len(lines) == len(texts) - 1
    assert all(line["text"].upper().split() == shared.upper().split()[: len(line["text"].split())] for line in lines)


def test_counts_by_input_and_language_add_up(tmp_path):
    rng = random.Random(3)
    write_lines(tmp_path / "a.jsonl", {f"a{number}": "\n".join(prose(rng, 3)) for number in range(10)} | {"none": ""})
    write_lines(tmp_path / "b.jsonl", {f"b{number}": "\n".join(prose(rng, 2)) for number in range(5)})
    inputs = [f"{tmp_path}/a*", f"{tmp_path}/b.jsonl"]
    # A repeated flag adds to its earlier values.
    manifest = corpus(tmp_path / "out", "--input", inputs[0], "--input", inputs[1], "--input_weights", 1, 2.5)
    counts = manifest["counts"]
    assert counts["inputs"][inputs[0]]["documents"] == 10
    assert counts["inputs"][inputs[0]]["rejected"] == {"no_text": 1}
    assert counts["inputs"][inputs[1]]["documents"] == 5
    rows = documents(tmp_path / "out").values()
    texts = ["\n".join(row["sentences"]) for row in rows]
    expected = {
        "documents": len(texts),
        "sentences": sum(len(text.split("\n")) for text in texts),
        "words": sum(len(text.split()) for text in texts),
        "characters": sum(map(len, texts)),
        "bytes": sum(len(text.encode()) for text in texts),
    }
    assert counts["languages"] == {"en": expected}
    for unit, number in expected.items():
        assert sum(size[unit] for size in counts["inputs"].values()) == number
    assert {row["weight"] for row in rows if row["title"].startswith("a")} == {1.0}
    assert {row["weight"] for row in rows if row["title"].startswith("b")} == {2.5}


@pytest.mark.parametrize("input_format", ["auto", "text"])
def test_the_segmenter_lines_keeps_the_lines_of_plain_text(tmp_path, input_format):
    lines = [
        "Dr. Ross has",
        "a train. It is late.",
        "",
        "  The second paragraph  ",
        "has two lines",
        "\t",
        "and an end",
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    flags = ("--input", tmp_path / "a.txt", "--input_format", input_format, "--vocab_size", 60)
    corpus(tmp_path / "out", *flags, "--validation_fraction", 0, "--segmenter", "lines")
    (row,) = corpus_rows(tmp_path / "out")
    assert row["sentences"] == [line.strip() for line in lines if line.strip()]


def test_linked_files_are_duplicates_and_a_linked_output_is_no_input(tmp_path):
    """A file that a pattern matches through a link too is one document, and a link to the output is not followed."""
    output = tmp_path / "out"
    (tmp_path / "texts").mkdir()
    for name in "ab":
        (tmp_path / "texts" / f"{name}.txt").write_text(f"Text {name} is about trains.\n")
    (tmp_path / "linked").symlink_to("texts")
    output.mkdir()
    (tmp_path / "latest").symlink_to("out")
    flags = ("--input", tmp_path / "**", "--validation_fraction", 0)
    for _ in range(2):
        manifest = corpus(output, *flags, "--vocab_size", 30)
        names = [f"{tmp_path}/{folder}/{name}.txt" for folder in ("linked", "texts") for name in "ab"]
        assert [file[0] for file in manifest["files"]] == names
        (counts,) = manifest["counts"]["inputs"].values()
        assert (counts["documents"], counts["rejected"]) == (2, {"duplicate": 2})


def test_each_input_requires_a_positive_weight(tmp_path, capsys):
    write_lines(tmp_path / "a.jsonl", {"a": "Some text."})
    argv = ["corpus", "--input", f"{tmp_path}/a.jsonl", "--output", str(tmp_path / "out"), "--input_weights", "1", "2"]
    assert cli.main(argv) == 1
    assert "--input_weights has 2 values for 1 --input pattern;" in capsys.readouterr().err
    for weight in ("0", "1000.5"):
        with pytest.raises(SystemExit):
            cli.main([*argv[:-2], weight])
        assert f"{weight!r} is not a number above 0 to 1000" in capsys.readouterr().err


@pytest.fixture(scope="module")
def some_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("some")
    rng = random.Random(4)
    for number in range(3):
        write_lines(folder / f"{number}.jsonl", {f"{number}-{i}": "\n".join(prose(rng, 4)) for i in range(9)})
    return folder


def test_corpus_shards_are_kept_if_the_vocabulary_is_too_large(some_files, tmp_path, capsys):
    argv = ["corpus", "--input", f"{some_files}/*", "--output", str(tmp_path / "out"), "--vocab_size"]
    assert cli.main([*argv, "700000"]) == 1
    assert "lower --vocab_size to" in capsys.readouterr().err
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("corpus/*")}
    assert written
    assert cli.main([*argv, "400"]) == 0
    assert "resuming an earlier run" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("corpus/*")} == written
    assert cli.main([*argv[:4], str(tmp_path / "new"), "--vocab_size", "400"]) == 0
    files = ("corpus/*", "rejected/*", "vocab.txt")
    assert digests(tmp_path / "new", *files) == digests(tmp_path / "out", *files)
    # The word counts depend on the letter case.
    assert cli.main([*argv[:4], str(tmp_path / "other"), "--vocab_size", "700000"]) == 1
    assert cli.main([*argv[:4], str(tmp_path / "other"), "--vocab_size", "400", "--do_lower_case", "false"]) == 0
    assert "resuming" not in capsys.readouterr().out


def test_work_that_an_interrupt_after_the_last_file_left_is_removed(some_files, tmp_path, monkeypatch):
    argv = ["corpus", "--vocab_size", "300", "--input", f"{some_files}/*", "--output", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    work, mark = (tmp_path / "out/unfinished" / name for name in ("0123456789abcdef01234567", "started.json"))
    work.mkdir(parents=True)
    # The examples of a stopped `build` are resumed.
    mark.write_text('{"command": "pretraining-data"}')
    assert cli.main(argv) == 0
    assert work.exists()
    mark.write_text('{"command": "corpus"}')

    def interrupt(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupt)
        assert cli.main(argv) == 130
    assert mark.exists()
    assert cli.main(argv) == 0
    assert not (tmp_path / "out/unfinished").exists()


def test_work_of_other_options_is_not_resumed(some_files, tmp_path):
    flags = ["--vocab_size", "300", "--input", f"{some_files}/*"]
    stale = tmp_path / "out/unfinished/0123456789abcdef01234567"
    stale.mkdir(parents=True)
    (stale / "x.json").write_text("{}")
    (tmp_path / "out/corpus").mkdir()
    (tmp_path / "out/corpus/train-00000-of-00009.parquet").write_text("stale")
    assert cli.main(["corpus", *flags, "--output", str(tmp_path / "out")]) == 0
    assert not (tmp_path / "out/unfinished").exists()
    manifest = corpus_manifest.load(str(tmp_path / "out"))
    assert {f"corpus/{path.name}" for path in (tmp_path / "out/corpus").iterdir()} == {p.name for p in manifest.shards}


def test_small_languages_are_seen_more_often(tmp_path, capsys):
    rng = random.Random(5)
    lines = [("en", f"en{number}", prose(rng, 8)) for number in range(90)]
    lines += [("de", f"de{number}", [p.replace("a", "\u00e4") for p in prose(rng, 8)]) for number in range(10)]
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"lang": code, "title": t, "text": "\n".join(ps)}) + "\n" for code, t, ps in lines)
    )
    flags = ["--input", path, "--language_field", "lang", "--do_lower_case", "false", "--validation_fraction", "0"]
    plain = corpus(tmp_path / "plain", *flags)
    smooth = corpus(tmp_path / "smooth", *flags, "--language_sampling_exponent", "0.5")
    assert {row["language"] for row in documents(tmp_path / "smooth").values()} == {"en", "de"}
    assert plain["counts"] == smooth["counts"]
    # Only the small language has this letter. A larger weight gives it more tokens of the vocabulary.
    pieces = [
        sum("\u00e4" in piece for piece in (tmp_path / name / "vocab.txt").read_text().split("\n"))
        for name in ("plain", "smooth")
    ]
    assert pieces[0] < pieces[1]

    def german_share(name: str) -> tuple[int, float]:
        argv = ["pretraining-data", "--input", str(tmp_path / name), "--output", str(tmp_path / f"{name}-data")]
        argv += ["--dupe_factor", "20", "--format", "parquet", "--vocab_file", str(tmp_path / "plain/vocab.txt")]
        assert cli.main(argv) == 0
        manifest = dataset.load(tmp_path / f"{name}-data")
        return manifest.counts["train"]["instance_tokens"], shares_of_letter(tmp_path / f"{name}-data")

    (plain_tokens, plain_share), (smooth_tokens, smooth_share) = german_share("plain"), german_share("smooth")
    # 0.1 ** 0.5 to 0.9 ** 0.5 is one to three, so the share grows from 0.1 to 0.25. The total stays the same.
    # The tolerance is four standard deviations.
    assert smooth_share / plain_share == pytest.approx(2.5, abs=0.35)
    assert smooth_tokens / plain_tokens == pytest.approx(1, abs=0.1)


def shares_of_letter(data: Path) -> float:
    """Return the fraction of tokens in the training examples that contain the letter of the small language."""
    vocab = (data / "vocab.txt").read_text().split("\n")
    marked = [number for number, piece in enumerate(vocab) if "\u00e4" in piece]
    manifest = dataset.load(data)
    tables = [pyarrow.parquet.read_table(data / shard.name) for shard in manifest.shards_of("train")]
    ids = np.concatenate([table["input_ids"].combine_chunks().flatten() for table in tables])
    return np.isin(ids, marked).mean()
