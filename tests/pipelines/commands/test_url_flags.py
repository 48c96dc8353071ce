"""Test the flags of the rules for URLs: their files are checked before a job starts, and recorded."""

import json

import pytest

from beambert import cli
from tests.every_output import corpus_rows, rejected

SMALL = ["--vocab_size", "30", "--validation_fraction", "0", "--num_partitions", "1", "--input_format", "sentences"]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("The cat sat on the mat.\n\nThe dog ran in the fog.\n")
    return ["corpus", "--input", "texts.txt", "--output", "out", *SMALL]


def test_documents_without_a_url(corpus, tmp_path, capsys):
    (tmp_path / "list.txt").write_text("example.org\n")
    flags = ["--block_urls", "list.txt", "--drop_duplicate_urls", "--drop_domain_lines", "2"]
    assert cli.main([*corpus, *flags]) == 0
    manifest = json.loads((tmp_path / "out/corpus.json").read_text())
    assert manifest["counts"]["documents"] == {"train": 2, "validation": 0}
    assert manifest["options"]["block_urls"] == [str(tmp_path / "list.txt")]
    assert [path for path, *_ in manifest["files"]] == [str(tmp_path / "texts.txt"), str(tmp_path / "list.txt")]
    assert not rejected(tmp_path / "out")
    assert "warning     no document has a URL, so --block_urls had no effect" in capsys.readouterr().err
    # Another content of the list is another corpus.
    (tmp_path / "list.txt").write_text("example.org\nexample.net\n")
    assert cli.main([*corpus, *flags]) == 1
    assert "out" in capsys.readouterr().err
    corpus[corpus.index("out")] = "other"
    assert cli.main([*corpus, "--allow_urls", "list.txt"]) == 1
    assert "check any rejected/*.jsonl in the output directory" in capsys.readouterr().err
    assert {line["reason"] for line in rejected(tmp_path / "other")} == {"unlisted_url"}


def test_records_with_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages = [
        ("https://www.one.org/a", "Menu of one.\nThe cat sat on the mat."),
        ("http://one.org/a?utm_source=x", "Menu of one.\nThe cat sat on the mats."),
        ("http://one.org/b", "Menu of one.\nThe dog ran in the fog."),
        ("http://one.org/c.pdf", "Menu of one.\nThe cow ate the grass."),
        ("http://shop.two.org/", "Buy a hat."),
        ("http://three.org/", "Menu of one.\nThe hen laid an egg."),
    ]
    lines = [json.dumps({"url": url, "text": text, "by": "joe@example.org"}) for url, text in pages]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines))
    (tmp_path / "list.txt").write_text("two.org\n.pdf\n")
    flags = ["--keep_fields", "url,by", "--block_urls", "list.txt", "--drop_duplicate_urls"]
    flags += ["--drop_domain_lines", "2", "--pii", "mask", "--vocab_size", "50"]
    flags += ["--validation_fraction", "0", "--num_partitions", "2"]
    assert cli.main(["corpus", "--input", "pages.jsonl", "--output", "out", *flags]) == 0
    counts = json.loads((tmp_path / "out/corpus.json").read_text())["counts"]
    assert counts["documents_rejected"] == {"blocked_url": 2, "duplicate_url": 1}
    assert counts["paragraphs_cleaned"] == {"domain_line": 2}
    rows = corpus_rows(tmp_path / "out")
    assert {row["sentences"][0] for row in rows if "one.org" in row["metadata"]} <= {
        "The cat sat on the mat.",
        "The cat sat on the mats.",
        "The dog ran in the fog.",
    }
    assert [row["sentences"][0] for row in rows if "three.org" in row["metadata"]] == ["Menu of one."]
    listed = rejected(tmp_path / "out")
    assert {line["reason"] for line in listed} == {"blocked_url", "duplicate_url", "domain_line"}
    assert {line["metadata"]["by"] for line in listed} == {"[EMAIL]"}
    assert not any("joe" in row["metadata"] for row in rows)


@pytest.mark.parametrize("command", ["corpus", "vocab", "build"])
def test_records_whose_url_is_not_kept(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.jsonl").write_text('{"url": "http://one.org", "text": "The cat sat on the mat."}\n')
    argv = [command, "--input", "pages.jsonl", "--output", "out", "--vocab_size", "30", "--drop_domain_lines", "2"]
    assert cli.main(argv) == 1
    expected = f"beambert {command}: error: --drop_domain_lines needs the URLs of the documents; keep them with "
    assert capsys.readouterr().err == f"{expected}--keep_fields url\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "flags", "problem"),
    [
        ("http://a.net/\n", ["--block_urls", "list.txt"], "list.txt: line 1 is 'http://a.net/'; give a domain"),
        ("a.net\n", ["--allow_urls", "missing.txt"], "--allow_urls"),
        ("a.net\n", ["--drop_domain_lines", "1"], "--drop_domain_lines 1 would remove every line"),
    ],
)
def test_mistakes(corpus, tmp_path, capsys, content, flags, problem):
    (tmp_path / "list.txt").write_text(content)
    assert cli.main([*corpus, *flags]) == 1
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
