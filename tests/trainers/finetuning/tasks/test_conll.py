import numpy as np
import pytest

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks import conll
from beambert.trainers.finetuning.tasks.conll import read, with_predictions
from tests.trainers.finetuning.tasks.ner_sentences import sentences, text


def write(directory, content, name="train.txt"):
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_layout_of_conll_2003(tmp_path):
    file = read(write(tmp_path, text()))
    documents = sentences()
    every = [words for document in documents for words in document]
    assert len(file) == len(every) == 34
    assert file.words == tuple(word for words in every for word, _, _ in words)
    assert np.diff(file.sentence_splits).tolist() == [len(words) for words in every]
    starts = np.cumsum([0, *map(len, documents)])
    assert file.document_splits().tolist() == starts.tolist()
    assert [line for _, line in file.document_marks] == ["-DOCSTART- -X- -X- O"] * 6
    lines = text().split("\n")
    assert all(lines[number - 1].split()[0] == word for number, word in zip(file.line_numbers, file.words, strict=True))
    assert all(lines[number - 1].split()[3] == tag for number, tag in zip(file.line_numbers, file.tags, strict=True))
    assert file.where(0) == "train.txt, line 3"


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffEU\tB-ORG\nsays\tO\n\nno\tO\n",
        "EU B-ORG\r\nsays O\r\n\r\n\r\nno O",
        "EU B-ORG\rsays O\r\rno O\r",
        "EU B-ORG\r\r\nsays O\r\r\n\r\r\nno O\r\r\n",
        "\n \n  EU \t B-ORG  \nsays   O\n \t\nno O\n\n",
        "-DOCSTART-\nEU B-ORG\nsays O\n-DOCSTART- (2 x)\nno O\n",
        "# text = EU says\nEU B-ORG\nsays O\n\n# text = no\nno O\n",
    ],
)
def test_equivalent_files_are_read_the_same_way(tmp_path, content):
    file = read(write(tmp_path, content), comment_prefix="# ")
    assert file.words == ("EU", "says", "no")
    assert file.tags == ("B-ORG", "O", "O")
    assert file.sentence_splits.tolist() == [0, 2, 3]


def test_only_spaces_and_tabs_separate_columns_and_only_carriage_returns_and_line_feeds_end_lines(tmp_path):
    words = ("a\u00a0b", "c\u2028d", "e\u200bf", "\u3000", "g\x0bh", "\x85")
    file = read(write(tmp_path, "".join(f"{word} O\n" for word in words)))
    assert file.words == words
    assert file.line_numbers.tolist() == [1, 2, 3, 4, 5, 6]
    # Between tabs, a word may contain spaces or be empty.
    file = read(write(tmp_path, "New York\tB-LOC\n\tO\n"))
    assert (file.words, file.separator) == (("New York", ""), "\t")
    # Where not every line has a tab, tabs are treated like spaces.
    assert read(write(tmp_path, "a\tx O\nb x B-LOC\n")).tags == ("O", "B-LOC")


def test_columns_and_comments_of_other_kinds(tmp_path):
    # GermEval 2014 has a number before the word, and an inner tag after the outer tag.
    german = "#\thttp://example.org [2010]\n1\tAm\tO\tO\n2\tRhein\tB-LOC\tO\n"
    file = read(write(tmp_path, german), word_column=1, tag_column=2, comment_prefix="#")
    assert (file.words, file.tags) == (("Am", "Rhein"), ("O", "B-LOC"))
    assert read(write(tmp_path, german), word_column=-3, tag_column=-2, comment_prefix="#").tags == file.tags
    # In CoNLL-2003 a number sign is a word; in CoNLL-U it starts a comment.
    assert read(write(tmp_path, "# NN O\n1 CD O\n")).words == ("#", "1")
    assert read(write(tmp_path, "# id = 1\nEU B-ORG\n", "train.conllu")).words == ("EU",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.txt has no sentence"),
        ("\n-DOCSTART- O\n\n", "train.txt has no sentence"),
        ("EU O\nsays\n", "train.txt, line 2: 1 column, while line 1 has 2: 'says': fix the line"),
        ("EU\nsays\n", "train.txt, line 1: 1 column and no tag: 'EU'"),
        (
            "EU O\n\n# id 12 x\nsays O\n",
            """line 3: 4 columns, while line 1 has 2: '# id 12 x': for a comment use""",
        ),
        (b"ok O\n\ncaf\xe9 O\n", "train.txt, line 3: byte 0xe9 is not UTF-8: convert the file, for Latin-1"),
        ("EU O\n".encode("utf-16"), "train.txt is UTF-16: convert it with iconv -f UTF-16"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, message):
    with pytest.raises(TaskDataError) as caught:
        read(write(tmp_path, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_that_are_not_there(tmp_path):
    path = write(tmp_path, "EU NN O\n")
    with pytest.raises(TaskDataError, match="line 1: 3 columns, fewer than --word_column requires"):
        read(path, word_column=3)
    with pytest.raises(TaskDataError, match="line 1: 3 columns and no tag"):
        read(path, tag_column=-4)
    with pytest.raises(TaskDataError, match="cannot be read"):
        read(tmp_path / "none.txt")


@pytest.mark.parametrize("content", ["EU\nsays\n", "EU _\nsays _\n", "EU\t\nsays\t\n", "EU - ?\nsays - ?\n"])
def test_a_file_without_tags(tmp_path, content):
    file = read(write(tmp_path, content), tags_needed=False)
    assert (file.words, file.tags) == (("EU", "says"), None)
    assert [line.split()[-1] for line in with_predictions(file, ["B-ORG", "O"]).split("\n")[:2]] == ["B-ORG", "O"]


def test_file_of_a_split_is_found(tmp_path):
    with pytest.raises(TaskDataError, match=r"has no file for the dev split: add dev\.txt"):
        conll.find(tmp_path, "dev")
    for split, name in (("train", "eng.train"), ("dev", "valid.txt"), ("test", "test.conll")):
        write(tmp_path, "EU O\n", name)
        assert conll.find(tmp_path, split).name == name
    write(tmp_path, "EU O\n", "eng.testa")
    with pytest.raises(TaskDataError, match=r"has valid\.txt and eng\.testa for the dev split: keep one of them"):
        conll.find(tmp_path, "dev")


def test_predictions_are_an_additional_column(tmp_path):
    file = read(write(tmp_path, text()))
    tags = [f"B-{number}" for number in range(len(file.words))]
    written = with_predictions(file, tags)
    # The output is the input with one more column, for words and document marks.
    rows = [line.rsplit(" ", 1) for line in written.split("\n")]
    assert "\n".join(row[0] for row in rows) == text()
    assert [row[1] for row in rows if len(row) == 2 and row[0][:5] != "-DOCS"] == tags
    assert {row[1] for row in rows if row[0][:5] == "-DOCS"} == {"O"}
    # Every row has the same number of columns; the last two are for comparison.
    content = "#\tcomment\n-DOCSTART-\n1\tEU\tB-ORG\tO\n2\tsays\tO\tO\n"
    file = read(write(tmp_path, content), word_column=1, tag_column=2, comment_prefix="#")
    assert with_predictions(file, ["O", "B-LOC"]) == (
        "-DOCSTART-\tO\tO\tO\tO\tO\n\n1\tEU\tB-ORG\tO\tB-ORG\tO\n2\tsays\tO\tO\tO\tB-LOC\n\n"
    )


def test_the_first_sentences(tmp_path):
    file = read(write(tmp_path, text()))
    part = file.first(7)
    assert len(part) == 7
    assert part.document_splits().tolist() == [0, 6, 7]
    assert len(part.words) == len(part.tags) == len(part.rows) == len(part.line_numbers) == part.sentence_splits[-1]
    assert part.words == file.words[: len(part.words)]
    assert file.first(None) is file
    assert file.first(1000) is file
