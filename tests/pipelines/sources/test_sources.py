"""Tests of each reader on small files of its format, and of errors for invalid or corrupt files."""

import bz2
import errno
import gzip
import itertools
import json
import lzma
import os
import re
import sys
import types
import zlib
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from beambert import cli
from beambert.pipelines import formats
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import recognize
from beambert.pipelines.formats.fields import FieldReader
from beambert.pipelines.formats.input_format import InputFormat, ReadOptions
from beambert.pipelines.sources import readers
from beambert.pipelines.sources.files import match_files
from beambert.pipelines.sources.readers import find_format, range_format, read_file


def read(path, content: bytes, **options):
    path.write_bytes(content)
    return list(read_file(str(path), ReadOptions(**options)))


def test_sentences_are_grouped_by_empty_lines(tmp_path):
    documents = read(tmp_path / "a.txt", b"\n\nOne.\nTwo.\n \n\t\n\nThree.\r\n\r\nFour.", input_format="sentences")
    assert [document.paragraphs for document in documents] == [["One.", "Two."], ["Three."], ["Four."]]
    assert all(document.segmented for document in documents)


@pytest.mark.parametrize("name", ["sentences", "bookcorpus"])
def test_lines_of_sentences_may_end_with_cr(tmp_path, name):
    for content in (b"One.\rTwo.\r\rThree.\r", b"One.\rTwo.\n\rThree.", b"One.\r\r\nTwo.\r\r\n\r\nThree."):
        documents = read(tmp_path / "a.txt", content, input_format=name)
        assert [document.paragraphs for document in documents] == [["One.", "Two."], ["Three."]], content
    assert [document.line for document in read(tmp_path / "a.txt", b"One.\r\rTwo.\n\nThree.", input_format=name)] == [
        1,
        3,
        5,
    ]


def test_text_joins_wrapped_lines_between_empty_ones(tmp_path):
    (document,) = read(tmp_path / "a.txt", b"\xef\xbb\xbfA wrapped\nparagraph.\n\nAnother.\n")
    assert document.paragraphs == ["A wrapped paragraph.", "Another."]
    assert not document.segmented
    (document,) = read(tmp_path / "b.txt", b"A paragraph.\nAnother.\n")
    assert document.paragraphs == ["A paragraph.", "Another."]
    (document,) = read(tmp_path / "c.txt", b"\n\n")
    assert document.paragraphs == []


def test_jsonl_takes_the_named_field(tmp_path):
    lines = [{"body": "One.\nTwo.", "title": "T"}, {"body": "Lone \ud800 surrogate", "title": 3}]
    content = "\n".join(json.dumps(line) for line in lines).encode() + b"\n\n"
    first, second = read(tmp_path / "a.jsonl", content, text_field="body")
    assert (first.paragraphs, first.title) == (["One.", "Two."], "T")
    assert (second.paragraphs, second.title) == (["Lone ? surrogate"], "")


def test_wikiextractor(tmp_path):
    content = b"""<doc id="1" url="u" title="Tom &amp; "Jerry"">
Tom & "Jerry"

A &lt; B &amp; C.
Second.
</doc>
<doc id="2" url="u" title="Empty">
Empty

</doc>

<doc id="3" url="u" title="Cut short">
Cut short

As far as it"""
    documents = read(tmp_path / "wiki_00", content)
    assert [(document.title, document.paragraphs) for document in documents] == [
        ('Tom & "Jerry"', ["A < B & C.", "Second."]),
        ("Empty", []),
        ("Cut short", ["As far as it"]),
    ]


def test_marks_and_placeholders_of_wikiextractor_are_removed(tmp_path):
    lines = [
        "Section::::Early life.",
        "BULLET::::- An item.",
        "BULLET::::1. One.",
        "The function codice_2 is fast.",
        "formula_10",
    ]
    content = "\n".join(['<doc id="1" url="u" title="A">', "A", "", *lines, "</doc>"]).encode()
    (document,) = read(tmp_path / "wiki_00", content)
    article = {"id": "12", "revid": "7", "url": "u", "title": "A", "text": "\n".join(lines)}
    (from_json,) = read(tmp_path / "wiki_01", json.dumps(article).encode())
    assert (
        document.paragraphs == ["Early life.", "An item.", "1. One.", "The function  is fast."] == from_json.paragraphs
    )


def test_wikiextractor_json(tmp_path):
    # The output of WikiExtractor 3 with --json, which contains entities.
    articles = [
        {"id": "12", "revid": "7", "url": "https://x?curid=12", "title": "A &amp; B", "text": "One &lt; two.\n\nB."},
        {"id": "13", "revid": None, "url": "u", "title": "C", "text": "C\n\nThe title came first."},
    ]
    documents = read(tmp_path / "wiki_00", "".join(json.dumps(article) + "\n" for article in articles).encode())
    assert [(document.title, document.paragraphs) for document in documents] == [
        ("A & B", ["One < two.", "B."]),
        ("C", ["The title came first."]),
    ]
    assert recognize("a", b'{"id": "12", "text": "a"}').name == "jsonl"


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n", b"\xef\xbb\xbf \r\n\n"])
@pytest.mark.parametrize("input_format", ["auto", "wikiextractor"])
def test_wikiextractor_json_after_a_byte_order_mark_and_blank_lines(tmp_path, start, input_format):
    article = b'{"id": "12", "url": "u", "title": "A", "text": "A\\n\\nIt is %d."}\n'
    content = start + b"".join(article % number for number in range(20))
    path = tmp_path / "wiki_00"
    documents = read(path, content, input_format=input_format)
    first = 1 + start.count(b"\n")
    assert [(document.line, document.paragraphs) for document in documents] == [
        (first + number, [f"It is {number}."]) for number in range(20)
    ]
    options = ReadOptions(input_format)
    assert range_format(str(path), options).name == "wikiextractor_json"
    assert find_format(str(path), options).has_fields
    edges = [0, 1, 3, 500, len(content)]
    ranges = [read_file(str(path), options, start, stop) for start, stop in itertools.pairwise(edges)]
    in_ranges = itertools.chain.from_iterable(ranges)
    assert [document.paragraphs for document in in_ranges] == [document.paragraphs for document in documents]


def test_jsonl_takes_lists_of_sentences(tmp_path):
    (document,) = read(tmp_path / "a.jsonl", b'{"text": ["One.", " ", "Two. Three."], "title": null}')
    assert document.paragraphs == ["One.", "Two. Three."]
    assert document.segmented
    (empty,) = read(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"text": ""}\r\n')
    assert empty.paragraphs == []


def test_bookcorpus(tmp_path, monkeypatch):
    documents = read(tmp_path / "a.txt", b"one .\ntwo .\n\nthree .\n", input_format="bookcorpus")
    assert [document.paragraphs for document in documents] == [["one .", "two ."], ["three ."]]
    assert all(document.segmented for document in documents)
    lines = [f"sentence {number} ." for number in range(50_000)]
    documents = read(tmp_path / "a.txt", "\n".join(lines).encode(), input_format="bookcorpus")
    assert [line for document in documents for line in document.paragraphs] == lines
    assert [zlib.crc32(document.paragraphs[-1].encode()) % 10_000 for document in documents[:-1]] == [0] * 4


def write_parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path.read_bytes()


def test_parquet(tmp_path):
    texts = ["One.\nTwo.", None, "Three."]
    data = write_parquet(tmp_path / "a.parquet", body=texts, title=["T", None, "U"], number=[1, 2, 3])
    assert recognize("whatever", data).name == "parquet"
    documents = read(tmp_path / "a.parquet", data, text_field="body")
    assert [(document.title, document.paragraphs) for document in documents] == [
        ("T", ["One.", "Two."]),
        ("", []),
        ("U", ["Three."]),
    ]


def test_parquet_errors_name_the_columns(tmp_path):
    data = write_parquet(tmp_path / "a.parquet", text=[1, 2, 3], body=["a", "b", "c"])
    for field in ("text", "nothing"):
        with pytest.raises(
            SourceError,
            match=re.escape(f"column {field!r} is missing or not text (columns: text (int64), body (string))"),
        ):
            read(tmp_path / "a.parquet", data, text_field=field)


def test_wikiextractor_refuses_text_outside(tmp_path):
    with pytest.raises(SourceError, match="line 1: text outside of <doc"):
        read(tmp_path / "a", b"no doc here\n", input_format="wikiextractor")


def test_wikiextractor_on_real_output(shared_data):
    path = shared_data / "wiki-extracted" / "enwiki-2015-00.bz2"
    documents = list(read_file(str(path), ReadOptions()))
    assert len(documents) == bz2.decompress(path.read_bytes()).count(b"<doc id=")
    assert documents[0].title == "Anarchism"
    assert documents[0].paragraphs[0].startswith("Anarchism is a political philosophy")
    assert not any("&lt;" in paragraph for document in documents for paragraph in document.paragraphs)


def test_language_reference():
    documents = list(read_file("language_reference", ReadOptions("language_reference")))
    assert len(documents) > 70
    assertion = next(document for document in documents if document.title == "assert")
    assert assertion.paragraphs[0] == 'The "assert" statement'
    assert assertion.paragraphs[1] == (
        "Assert statements are a convenient way to insert debugging assertions into a program:"
    )
    assert not any("****" in paragraph for document in documents for paragraph in document.paragraphs[:1])


def compress(suffix: str, data: bytes) -> bytes:
    if suffix == ".zst":
        return pyarrow.compress(data, codec="zstd", asbytes=True)
    return {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(data)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_compressed_files_and_damaged_ones(tmp_path, suffix):
    text = b"\n".join(b"Sentence number %d." % number for number in range(20_000))
    whole = compress(suffix, text)
    path = tmp_path / f"a.txt{suffix}"
    (document,) = read(path, whole, input_format="sentences")
    assert len(document.paragraphs) == 20_000
    twice = read(path, whole + compress(suffix, b"\n\n") + whole, input_format="sentences")
    assert len(twice) == 2
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    broken = [whole[: len(whole) // 2], whole[:-5]]
    if suffix != ".zst":  # pyarrow writes zstd without the checksum that would reveal a changed byte
        broken.append(bytes(damaged))
    for content in broken:
        with pytest.raises(SourceError, match=f"a.txt{suffix} is not a complete {suffix} file"):
            read(path, content, input_format="sentences")


def test_wrong_encoding_names_file_line_and_remedy(tmp_path):
    with pytest.raises(SourceError, match=r"a.txt, line 2: byte 0xe4 is not valid utf-8; .*--encoding latin-1"):
        read(tmp_path / "a.txt", "Gut.\nM\u00e4dchen.\n".encode("latin-1"))
    (document,) = read(tmp_path / "a.txt", "M\u00e4dchen.\n".encode("latin-1"), encoding="latin-1")
    assert document.paragraphs == ["M\u00e4dchen."]
    for encoding in ("utf-16", "nonsense", "undefined"):
        with pytest.raises(SourceError, match=f"--encoding {encoding}"):
            ReadOptions(encoding=encoding)


def test_only_the_given_part_is_a_pattern(tmp_path, monkeypatch):
    for folder in ("a1", "a[1]"):
        (tmp_path / folder / "texts").mkdir(parents=True)
        (tmp_path / folder / "texts" / "a.txt").write_text("text")
    own = tmp_path / "a[1]" / "texts"
    monkeypatch.chdir(own)
    monkeypatch.setenv("HOME", str(own))
    patterns = ["*.txt", "a.txt", "?.txt", "**", "../texts/*", "../../a[[]1]/**/*.txt", "~/*.txt"]
    assert [[file.path for file in match_files([pattern])] for pattern in patterns] == [[f"{own}/a.txt"]] * 7
    assert [file.path for file in match_files(["*.txt"], absolute_paths=False)] == ["a.txt"]
    assert [file.path for file in match_files([f"{own}/*.txt"])] == [f"{tmp_path}/a1/texts/a.txt"]
    with pytest.raises(SourceError, match=r"\[z-a\].txt is not a valid pattern .*such as \[a-z\]"):
        match_files(["[z-a].txt"])
    for pattern in (".", "..", "../texts"):
        with pytest.raises(SourceError, match="is a directory"):
            match_files([pattern])


@pytest.mark.filterwarnings("error")
def test_characters_that_may_get_another_meaning_in_a_set_match_without_a_warning(tmp_path):
    for name in ("a[1].txt", "a1.txt"):
        (tmp_path / name).write_text("text")
    for pattern in ("a[[]1].txt", "a[[]*", "?[[x]*", "[a~~]*].txt", "[!b&&c]*].txt"):
        assert [file.path for file in match_files([f"{tmp_path}/{pattern}"])] == [f"{tmp_path}/a[1].txt"]


def test_files_with_a_backslash_in_the_name_match(tmp_path):
    (tmp_path / "a\\b.txt").write_text("text")
    assert [file.path for file in match_files([f"{tmp_path}/*.txt"])] == [f"{tmp_path}/a\\b.txt"]


@pytest.mark.parametrize("window", [27, 28, 31])
def test_zstandard_windows_of_any_size(tmp_path, window):
    parameters = zstandard.ZstdCompressionParameters(window_log=window, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = compressor.compress(b"One.\n\nTwo.\n") + compressor.flush()
    assert zstandard.get_frame_parameters(content).window_size == 1 << window
    for name in ("sentences", "text"):
        documents = read(tmp_path / "a.txt.zst", content, input_format=name)
        assert [paragraph for document in documents for paragraph in document.paragraphs] == ["One.", "Two."]
    with pytest.raises(SourceError, match=r"a.txt.zst is not a complete .zst file"):
        read(tmp_path / "a.txt.zst", content[:-5], input_format="text")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("name", ["sentences", "text"])
def test_a_file_that_is_not_compressed_is_told_from_an_incomplete_one(tmp_path, suffix, name):
    with pytest.raises(
        SourceError, match=rf"a{suffix} is not compressed with {suffix}, in spite of its name; rename it"
    ):
        read(tmp_path / f"a{suffix}", b"One.\n\nTwo.\n" * 20, input_format=name)


@pytest.mark.parametrize("pattern", ["*", "**", "in/*", "i?/**"])
def test_hidden_files_are_skipped_and_said_once(tmp_path, capsys, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "_SUCCESS", ".a.txt.crc", ".DS_Store", "b.txt.crc", ".git/config", "_temporary/0/c.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text("x")
        if "/" not in name:
            (tmp_path / name).write_text("x")
    found = [file.path for file in match_files([pattern], absolute_paths=False)]
    assert found == {"*": ["a.txt"], "**": ["a.txt", "in/a.txt"]}.get(pattern, ["in/a.txt"])
    said = capsys.readouterr().err
    assert said.startswith(f"--input {pattern}: skipped ")
    assert said.count("\n") == 1


def test_the_name_of_a_hidden_file_reaches_no_terminal_as_an_escape(tmp_path, capsys):
    for name in ("a.txt", ".\x1b]0;title\x07.crc"):
        (tmp_path / name).write_text("x")
    match_files([f"{tmp_path}/*"])
    said = capsys.readouterr().err
    assert "skipped 1 hidden file" in said
    assert "\x1b" not in said


def test_hidden_files_are_read_if_the_pattern_names_them(tmp_path, capsys):
    (tmp_path / ".hidden").mkdir()
    for name in (".hidden/a.txt", "_b.txt", ".c.txt"):
        (tmp_path / name).write_text("x")
    for pattern, name in (
        (".hidden/*", ".hidden/a.txt"),
        ("_*", "_b.txt"),
        (".*.txt", ".c.txt"),
        (".c.txt", ".c.txt"),
        (".*/*", ".hidden/a.txt"),
    ):
        assert [file.path for file in match_files([f"{tmp_path}/{pattern}"])] == [f"{tmp_path}/{name}"]
    assert capsys.readouterr().err == ""
    with pytest.raises(SourceError, match="matches only hidden files, such as "):
        match_files([f"{tmp_path}/*.txt"])


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """The directory corpus, with links to a file, to itself, to its parent and to another directory, and the latter."""
    for name in ("corpus/a.txt", "corpus/en/x.txt", "other/de/x.txt", "other/deep/de/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    corpus = tmp_path / "corpus"
    (corpus / "linked").symlink_to("../other")
    (corpus / "fr").symlink_to("../other/de", target_is_directory=True)
    (corpus / "b.txt").symlink_to("a.txt")
    (corpus / "en" / "up").symlink_to("..")
    (tmp_path / "other" / "back").symlink_to("../corpus")
    (corpus / "parent").symlink_to("..")
    (tmp_path / "other" / "deep" / "all").symlink_to("/")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("corpus/*", "a.txt b.txt"),
        ("corpus/*/x.txt", "en/x.txt fr/x.txt"),
        ("corpus/*/*/x.txt", "linked/de/x.txt"),
        ("corpus/linked/*/x.txt", "linked/de/x.txt"),
        ("corpus/**", "a.txt b.txt en/x.txt fr/x.txt linked/de/x.txt linked/deep/de/x.txt"),
        ("corpus/**/de/?.txt", "linked/de/x.txt linked/deep/de/x.txt"),
        ("corpus/linke[a-d]/d*", ""),
        ("corpus/linke[a-d]/d*/*", "linked/de/x.txt"),
        ("corpus/fr?x.txt", "fr/x.txt"),
        ("corpus/fr[!a]x.txt", "fr/x.txt"),
    ],
)
def test_linked_directories_are_followed(trees, pattern, names):
    expected = [f"corpus/{name}" for name in names.split()]
    if not expected:
        with pytest.raises(SourceError, match="matches no files"):
            match_files([pattern])
        return
    assert [file.path for file in match_files([pattern])] == [f"{trees}/{name}" for name in expected]
    assert [file.path for file in match_files([pattern], absolute_paths=False)] == expected


@pytest.fixture
def listed(monkeypatch):
    """The listed directories. Those named "private" cannot be listed, also by root, and those named "gone" vanish."""
    names: list[str] = []
    scandir = os.scandir

    def scan(path):
        names.append(Path(path).name)
        if names[-1] == "private":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if names[-1] == "gone":
            Path(path).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    return names


def test_a_directory_that_may_contain_matches_and_cannot_be_listed_is_an_error(trees, listed):
    (trees / "other" / "private").mkdir()
    (trees / "other" / "gone").mkdir()
    for pattern in ("corpus/**", "corpus/*/*/x.txt", "corpus/linked/priv*/x.txt", "other/private/*", "other?**.txt"):
        with pytest.raises(SourceError, match="cannot be listed") as caught:
            match_files([pattern])
        assert re.fullmatch(
            r"--input \S+ matches files of the directory \S+/private, which cannot be listed \(Permission denied\); "
            "set its permissions, or give a pattern that matches no files below it",
            str(caught.value),
        )


@pytest.mark.parametrize(
    ("pattern", "directories"),
    [
        ("other/*", "other"),
        ("other/x*.txt", "other"),
        ("other/d*/x.txt", "other de deep"),
        # A question mark matches a slash too.
        ("other/de?p/**", "other de deep de"),
    ],
)
def test_only_directories_that_may_contain_matches_are_listed(trees, listed, pattern, directories):
    (trees / "other" / "x1.txt").write_text("text")
    (trees / "other" / "private").mkdir()
    match_files([pattern])
    assert sorted(listed) == sorted(directories.split())


def test_a_matching_broken_link_is_an_error(trees):
    (trees / "other" / "lost.txt").symlink_to("nowhere")
    (trees / "corpus" / "loop.txt").symlink_to("loop.txt")
    for pattern, name, target in (
        ("other/*.txt", "other/lost.txt", "nowhere"),
        ("corpus/linked/**", "corpus/linked/lost.txt", "nowhere"),
        ("corpus/*", "corpus/loop.txt", "loop.txt"),
    ):
        with pytest.raises(SourceError, match="broken link") as caught:
            match_files([pattern])
        assert re.fullmatch(
            rf"--input \S+ matches \S+/{name}, a broken link to {target} \([^()]+\); "
            "restore the file, delete the link, or give a pattern that does not match it",
            str(caught.value),
        )
    assert [file.path for file in match_files(["other/*/x.txt"])] == [f"{trees}/other/de/x.txt"]


def test_a_file_that_is_deleted_while_it_is_listed_is_skipped(trees, monkeypatch):
    getsize = os.path.getsize

    def size(path):
        if path.endswith("corpus/a.txt"):
            Path(path).unlink()
        if path.endswith("fr/x.txt"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return getsize(path)

    monkeypatch.setattr(os.path, "getsize", size)
    (trees / "corpus" / "b.txt").unlink()
    (trees / "corpus" / "c.txt").write_text("text")
    assert [file.path for file in match_files(["corpus/*"])] == [f"{trees}/corpus/c.txt"]
    with pytest.raises(SourceError, match=r"matches \S+/fr/x.txt, which cannot be read \(Permission denied\); set the"):
        match_files(["corpus/*/x.txt"])


def test_match_files_names_the_pattern(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("A.")
    (tmp_path / "b.txt").write_text("B.")
    (tmp_path / "empty.txt").write_text("")
    found = match_files([f"{tmp_path}/*.txt", f"{tmp_path}/a.txt"])
    assert [metadata.path for metadata in found] == [f"{tmp_path}/a.txt", f"{tmp_path}/b.txt"]
    with pytest.raises(SourceError, match="nothing-here"):
        match_files([f"{tmp_path}/nothing-here*"])
    with pytest.raises(SourceError, match="only empty files"):
        match_files([f"{tmp_path}/empty.txt"])
    assert "skipped 1 empty file, such as empty.txt" in capsys.readouterr().err
    (tmp_path / "in").mkdir()
    for name, text in (("empty.txt", ""), (".hidden.txt", "x")):
        (tmp_path / "in" / name).write_text(text)
    with pytest.raises(SourceError, match="only empty files"):
        match_files([f"{tmp_path}/in/**"])


def test_a_new_format_is_one_entry_of_the_registry(tmp_path, monkeypatch):
    """Read a format of records, in ranges, from the flag to the documents; no other list has to know it."""

    def read_lines(lines, path, options, start):
        fields = FieldReader(path, options)
        for line in lines:
            if not line.in_range:
                return
            key, _, value = line.content.decode().rstrip("\n").partition("=")
            yield fields.document({key: value}, f"line {line.number}", line.number)

    pairs = InputFormat(
        name="pairs",
        recognize=lambda stem, _head: stem.endswith(".pairs"),
        read_lines=read_lines,
        has_fields=True,
        has_language=True,
    )
    module = types.ModuleType("beambert.pipelines.formats.pairs")
    module.PAIRS = pairs
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(formats.FORMATS, "pairs", "pairs")
    path = tmp_path / "a.pairs"
    path.write_text("".join(f"body=This is the sentence with number {number}.\n" for number in range(200)))
    monkeypatch.setattr(readers, "_LINE_RANGE_BYTES", {"": 2000})
    output = tmp_path / "corpus"
    argv = ["corpus", "--input", str(path), "--output", str(output), "--input_format", "pairs", "--text_field", "body"]
    assert cli.main([*argv, "--vocab_size", "60", "--skip_rules", "repeated_ngrams"]) == 0
    assert corpus_manifest.load(str(output)).counts["documents_read"] == 200
