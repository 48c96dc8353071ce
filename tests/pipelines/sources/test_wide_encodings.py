"""Tests that every reader refuses UTF-16 and UTF-32, with or without a byte order mark.

Text with a few NUL characters is not refused.
"""

import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.cleaning.decontamination import read_evaluation_texts
from pipelines.sources import ReadOptions, SourceError, check_file, read_file
from pipelines.sources.wide_encodings import wide_encoding
from trainers.errors import TaskDataError
from trainers.finetuning.tasks.utf8_files import read_text

ENCODINGS = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
CONTENT = {
    "sentences": "A sentence.\nAnother.\n",
    "text": "A text.\n",
    "bookcorpus": "A sentence.\n",
    "gutenberg": "The Project Gutenberg EBook of Rivers\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\nText.\n",
    "jsonl": '{"text": "A text."}\n',
    "json": '[{"text": "A text."}]\n',
    "csv": "text\nA text.\n",
    "tsv": "text\nA text.\n",
    "wikiextractor": '<doc id="1" url="" title="A">\nA text.\n</doc>\n',
}


@pytest.mark.parametrize("input_format", CONTENT)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_reader_refuses_wide_encodings(tmp_path, input_format, encoding):
    name = encoding[:6]
    for path, data in {
        tmp_path / "a.txt": CONTENT[input_format].encode(encoding),
        tmp_path / "b.txt": (CONTENT[input_format] * 500).encode(encoding),
        tmp_path / "c.txt.gz": gzip.compress(CONTENT[input_format].encode(encoding)),
    }.items():
        path.write_bytes(data)
        for asked in (input_format, "auto"):
            options = ReadOptions(input_format=asked)
            for read in (lambda path, options: list(read_file(path, options)), check_file):
                with pytest.raises(SourceError, match=f"is {name.upper()}; convert it first: iconv -f {name} -t utf-8"):
                    read(str(path), options)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_fine_tuning_and_evaluation_files_in_wide_encodings_are_refused(tmp_path, encoding):
    name = encoding[:6].upper()
    for content in ("text,label\na,0\n", '{"text": "a"}\n', "EU B-ORG\n"):
        path = tmp_path / "train.csv"
        path.write_bytes(content.encode(encoding))
        with pytest.raises(TaskDataError, match=f"is {name}: convert it with iconv -f {name} -t UTF-8 train.csv"):
            read_text(path)
        with pytest.raises(SourceError, match=f"--decontaminate .* is encoded in {name}, not in UTF-8; convert"):
            list(read_evaluation_texts(str(path)))


@given(st.text(min_size=2), st.sampled_from(["", "\0", "\0\0"]))
def test_utf8_text_with_few_nul_characters_is_not_wide(text, nul):
    data = (text.replace("\0", "") + "x" * 8 + nul).encode("utf-8", "replace")
    assert not wide_encoding(data)


@given(st.text(st.characters(min_codepoint=9, max_codepoint=126), min_size=2), st.sampled_from(ENCODINGS))
def test_ascii_text_in_a_wide_encoding_is_recognized(text, encoding):
    assert wide_encoding(text.encode(encoding)) == encoding[:6].upper()


def test_a_fine_tuning_file_that_is_a_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(TaskDataError, match=r"train\.tsv cannot be read \(it is a named pipe \(FIFO\)\)"):
        read_text(tmp_path / "train.tsv")
    with pytest.raises(TaskDataError, match=r"cannot be read \(it is a directory\)"):
        read_text(tmp_path)
