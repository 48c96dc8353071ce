from hypothesis import given
from hypothesis import strategies as st

from beambert_common.unicode_text import escape_unprintable, replace_surrogates


@given(st.text(st.characters()))
def test_every_text_can_be_stored_after_surrogates_are_replaced(text):
    stored = replace_surrogates(text)
    assert stored.encode("utf-8").decode("utf-8") == stored
    assert stored == "".join("?" if "\ud800" <= character <= "\udfff" else character for character in text)


@given(st.text(st.characters()))
def test_every_character_is_printable_after_escaping(text):
    assert escape_unprintable(text).isprintable()


def test_what_is_escaped():
    assert escape_unprintable("a\u200bä\n") == "a\\u200bä\\u000a"
