"""Tests of SQuAD files: their content, and one-line errors for invalid files."""

import json

import pytest

from beambert.trainers.errors import TaskDataError
from beambert.trainers.finetuning.tasks.squad_files import Answer, read_squad
from tests.trainers.finetuning.tasks.squad_examples import write_squad

CONTEXT = "green tea and rain"


def question(number=1, text="green tea", start=0, **given):
    return {"id": f"q{number}", "question": "what?", "answers": [{"text": text, "answer_start": start}]} | given


def test_real_file(shared_data):
    file = read_squad(shared_data / "squad/xquad.de.json", version_2=False, training=True)
    assert (len(file.contexts), len(file.questions), file.labeled) == (240, 1190, True)
    assert sum(map(len, file.contexts)) < 250_000  # Each context is stored once.
    for item in file.questions:
        ((text, start),) = item.answers
        assert file.contexts[item.context][start : start + len(text)] == text
    first = file.first(7)
    assert len(first.questions) == 7
    assert first.contexts == file.contexts[: first.questions[-1].context + 1]
    assert file.first(None) is file
    assert len({file.digest(), first.digest()}) == 2


def test_a_context_that_stands_twice_is_kept_once(tmp_path):
    path = write_squad(tmp_path / "train.json", (CONTEXT, [question(1)]), ("rain", []), (CONTEXT, [question(2)]))
    file = read_squad(path, version_2=False)
    assert file.contexts == (CONTEXT, "rain")
    assert [item.context for item in file.questions] == [0, 0]
    assert file.where(1) == "train.json, question q2"


def test_unanswerable_questions_and_plausible_answers(tmp_path):
    impossible = question(2, answers=[], is_impossible=True, plausible_answers=[{"text": "tea", "answer_start": 6}])
    path = write_squad(tmp_path / "f.json", (CONTEXT, [question(1, is_impossible=False), impossible, question(3)]))
    answers = [item.answers for item in read_squad(path, version_2=True, training=True).questions]
    assert answers == [(Answer("green tea", 0),), (), (Answer("green tea", 0),)]
    with pytest.raises(TaskDataError, match=r"question q2 has no answers.*--version_2_with_negative"):
        read_squad(path, version_2=False)


def test_a_test_file_has_no_answers(tmp_path):
    bare = {"id": "q1", "question": "what?"}
    file = read_squad(write_squad(tmp_path / "f.json", (CONTEXT, [bare])), version_2=False)
    assert (file.labeled, file.questions[0].answers) == (False, ())
    with pytest.raises(TaskDataError, match="question q1: 'answers' is missing"):
        read_squad(tmp_path / "f.json", version_2=False, training=True)
    for questions in ([bare, question(2)], [question(2), bare]):
        path = write_squad(tmp_path / "g.json", (CONTEXT, questions))
        with pytest.raises(TaskDataError, match="question q1: 'answers' is missing, while other questions have it"):
            read_squad(path, version_2=True)


def test_a_byte_order_mark_is_no_part_of_the_file(tmp_path):
    path = write_squad(tmp_path / "f.json", (CONTEXT, [question()]))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_squad(path, version_2=False).questions) == 1


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ([question(text="tea", start=17)], r'answer "tea" at 17 is outside its context of 18 characters'),
        ([question(start=-1)], "at -1 is outside"),
        ([question(text="", start=18)], "the answer at 18 is empty"),
        ([question(text=" \u00a0", start=5)], "the answer at 5 is empty"),
        ([question(start="0")], r"""'answer_start' is "0", not an integer"""),
        ([question(start=True)], "'answer_start' is true, not an integer"),
        ([question(start=None)], "'answer_start' is null"),
        ([question(text=3)], "'text' is 3, not a string"),
        ([question(answers={})], r"'answers' is \{\}, not a list"),
        ([question(answers=["tea"])], r"""q1: "tea" is not an object with 'text'"""),
        ([question(answers=[{"text": "tea"}])], "'answer_start' is missing"),
        ([{"id": "q1", "answers": []}], "question q1: 'question' is missing"),
        ([question(id=7)], "paragraph 1: 'id' is 7, not a string"),
        ([{"question": "what?"}], r'f.json, article 1 "Tea", paragraph 1: \'id\' is missing'),
        ([3], "paragraph 1: 3 is not an object with 'id'"),
        ([question(is_impossible="no")], r"""'is_impossible' is "no", not true or false"""),
        ([question(is_impossible=True)], "'is_impossible' is true, but it has answers"),
        ([question(answers=[], is_impossible=False)], "'is_impossible' is false, but it has no answers"),
        ([], "has no questions"),
    ],
)
def test_invalid_questions_are_named_with_their_location(tmp_path, questions, said):
    path = write_squad(tmp_path / "f.json", (CONTEXT, questions))
    with pytest.raises(TaskDataError, match=said) as error:
        read_squad(path, version_2=True, training=True)
    assert "f.json" in str(error.value)
    assert "\n" not in str(error.value)


def test_duplicate_ids_are_refused_for_prediction(tmp_path):
    path = write_squad(tmp_path / "f.json", (CONTEXT, [question(), question()]))
    assert len(read_squad(path, version_2=False, training=True).questions) == 2
    with pytest.raises(TaskDataError, match="question q1: duplicate id"):
        read_squad(path, version_2=False)


def test_answer_start_is_optional_without_training(tmp_path):
    path = write_squad(tmp_path / "f.json", (CONTEXT, [question(answers=[{"text": "tea"}])]))
    assert read_squad(path, version_2=False).questions[0].answers == (Answer("tea", None),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"data": [', "line 1, column 11: invalid JSON"),
        (b'{"data": [],\n "data" 3}', "line 2, column 9: invalid JSON"),
        (b"\xff\xfe", "is UTF-16"),
        (b'\n{"\xe9', "line 2: byte 0xe9 is not UTF-8"),
        (b"[]", r"f.json: \[\] is not an object with 'data'"),
        (b"{}", "f.json: 'data' is missing"),
        (b'{"data": {}}', "'data' is {}, not a list"),
        (b'{"data": [{"title": "x"}]}', r"article 1 \"x\": 'paragraphs' is missing"),
        (b'{"data": [{"paragraphs": [{"qas": []}]}]}', "article 1, paragraph 1: 'context' is missing"),
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5_000, "a number has too many digits"),
    ],
)
def test_invalid_files_are_refused(tmp_path, content, said):
    path = tmp_path / "f.json"
    path.write_bytes(content)
    with pytest.raises(TaskDataError, match=said):
        read_squad(path, version_2=False)


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(TaskDataError, match=f"{path} cannot be read"):
            read_squad(path, version_2=False)


def test_lone_surrogate_is_accepted(tmp_path):
    path = tmp_path / "f.json"
    write_squad(path, (f"\ud800 {CONTEXT}", [question(start=2)]))
    assert json.loads(path.read_text())["data"]
    assert read_squad(path, version_2=False).digest()
