"""Tests of the Gutenberg reader: its single rules, and all books of the shared data.

No license text is left in these books, and no book is cut short.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beambert.pipelines.formats import gutenberg, recognize, wrapped_lines
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.sources.readers import read_file

# An independent oracle, written from the headers and footers of the books, not from the rules of the reader.
LICENCE = re.compile(
    r"gutenb[eu]rg|\be-?texts?\b|\be-?books?\b|small print|trademark|public domain|copyright"
    r"|disclaimer|indemni|tax.?deductible|donations? (?:should|are tax)|michael s\. hart|carnegie-mellon|promo\.net"
    r"|transcriber'?s?'? note|scanner's note|redactor's note|preparer's note|proofread|scanned by|\bemail\b|ftp\b"
    r"|(?:this|html) version|royalt(?:y|ies)\b.*payable|@\w|http:|https:|www\.|plain vanilla|\.zip\b|\*start\b",
    re.IGNORECASE,
)
# Text of the books themselves that contains one of these words: start of the file name, text around the word.
TRUE_MENTIONS = {
    ("cbtls1", "the disclaimer was no mere mock-humble affectation"),
    ("corii1", "have it back with a further indemnification"),
    ("hcath10", "As the war indemnity could not be raised"),
    ("hcath10", "together with a war indemnity of five million thalers"),
}
# First and last sentences of the works, collected by hand.
ENDS = {
    "pg1342.txt": ("It is a truth universally acknowledged", "had been the means of uniting them."),
    "1399-0.txt": ("Happy families are all alike;", "which I have the power to put into it."),
    "pg74.txt": ('"TOM!"', "any of that part of their lives at present."),
    "0ws0410.txt": ("Now is the Winter of our Discontent,", "Richmond, and the Battell at Bosworth Field."),
    "7hckb10.txt": ("Hier sieht man Fritz, den muntern Knaben,", "Bad zwei in einer Wanne nicht!"),
    "8isbl10.txt": ("Braka, die alte Zigeunerin im zerlumpten roten Mantel", "ist viel vom Herren verheißen."),
    "2almy10.txt": ("Partial collections of English poems", "Your words to me, your words!"),
    "3sdms10.txt": ("TO JAMES OTIS.", "President of the Continental Congress."),
    "ttalk10.txt": ('"They are very pretty, some of them,"', "said the Philosopher."),
}


# Number of chapters, counted in the books.
CHAPTERS = {"1399-0.txt": 239, "pg1342.txt": 61, "8wml410.txt": 20, "7wml110.txt": 17, "8gwss10.txt": 3}
# Books of every layout. The slow tests read all of them.
SOME = {*ENDS, *CHAPTERS, "0ws1810.txt", "7nvll10.txt", "balen10.txt", "corii10.txt"} - {"1399-0.txt", "3sdms10.txt"}


def read_book(path, **options):
    return list(read_file(str(path), ReadOptions(**options)))


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.slow)])
def books(request, shared_data):
    """The document of each book, by path."""
    paths = sorted((shared_data / "gutenberg").glob("*.txt"))
    assert len(paths) == 53
    documents = {}
    for path in paths:
        if request.param == "all" or path.name in SOME:
            (documents[path],) = read_book(path)
    return documents


def letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def between_marks(path) -> str:
    """Return the text between the last line of the header and the first of the footer, found by hand-written marks."""
    data = path.read_bytes()
    text = data.decode("utf-8-sig") if data.startswith(b"\xef\xbb\xbf") else data.decode("latin-1")
    header = list(re.finditer(r"\*END\*THE SMALL PRINT.*|ETEXTS\*END\*|\*\*\* START OF TH.*\*\*\*", text))
    footer = re.search(r"\*\*\* END OF TH", text)
    return text[header[0].end() : footer.start() if footer else len(text)]


def test_no_line_of_license_is_left_and_no_book_is_cut_short(books):
    left = []
    for path, document in books.items():
        assert recognize(str(path), path.read_bytes()[:4096]).name == "gutenberg", path.name
        for paragraph in document.paragraphs:
            if LICENCE.search(paragraph) and not any(
                path.name.startswith(book) and mention in paragraph for book, mention in TRUE_MENTIONS
            ):
                left.append((path.name, paragraph[:100]))
        text = "\n".join(document.paragraphs)
        # Notes on the edition are 2-4 % of a play of the First Folio, a table of contents 2 % at most.
        assert letters(text) > 0.95 * letters(between_marks(path)), path.name
        if path.name in ENDS:
            first, last = ENDS[path.name]
            assert first in text[: len(text) // 10], path.name
            assert last in text[-200:], path.name
    assert left == []


def test_chapters_hold_all_that_the_book_holds(books):
    counts = {}
    for path, book in books.items():
        parts = read_book(path, document_unit="chapter")
        counts[path.name] = len(parts)
        assert [paragraph for part in parts for paragraph in part.paragraphs] == book.paragraphs
        assert all(part.title.startswith(book.title) for part in parts)
    for name in CHAPTERS.keys() & counts.keys():
        assert counts[name] == CHAPTERS[name], name


def test_titles(books):
    titles = {path.name: document.title for path, document in books.items()}
    assert titles["pg1342.txt"] == "Pride and Prejudice"
    assert titles["8isbl10.txt"] == "Isabella von Ägypten"
    assert titles["0ws1810.txt"] == "The Merchant of Venice"


def test_encodings():
    text = "Mädchen – „Ja“"
    for encoding in ("utf-8", "utf-8-sig", "cp1252"):
        assert gutenberg.decode(text.encode(encoding), "utf-8") == text
    assert gutenberg.decode("Mädchen".encode("latin-1"), "utf-8") == "Mädchen"
    assert gutenberg.decode(b"M\x84dchen", "cp437") == "Mädchen"
    for encoding in ("cp437", "latin-1"):
        assert gutenberg.decode(text.encode("utf-8"), encoding) == text
    assert gutenberg.decode(b"\x81", "utf-8") == "\x81"
    assert gutenberg.split_lines("a\r\nb\r\r\nc\rd\ne ") == ["a", "b", "c", "d", "e"]


MODERN = """The Project Gutenberg EBook of A Tale, by Nobody

*** START OF THIS PROJECT GUTENBERG EBOOK A TALE WITH A TITLE OF
TWO LINES ***

Produced by Somebody and the Online Distributed
Proofreading Team


A TALE

by Nobody


CHAPTER I

It was a _dark_ night and the wind blew over the
fields, over the fortun-
ate houses; a well-known
man came.

[Illustration: The man]

"Who?" [Page 12] she asked.


End of the Project Gutenberg EBook of A Tale, by Nobody

*** END OF THIS PROJECT GUTENBERG EBOOK A TALE ***
Licence.
"""


def test_modern_layout_complete_or_truncated(tmp_path):
    path = tmp_path / "a.txt"
    text = ["CHAPTER I"]
    text.append(
        "It was a dark night and the wind blew over the fields, over the fortun-ate houses; a well-known man came."
    )
    text.append('"Who?" she asked.')
    path.write_text(MODERN)
    (document,) = read_book(path)
    assert document.paragraphs == text
    assert document.title == "A Tale"
    # The file ends before the footer, then has no header, then has only a header.
    path.write_text(MODERN[: MODERN.index("End of the")])
    assert read_book(path)[0].paragraphs == text
    path.write_text(MODERN[MODERN.index("CHAPTER I") :])
    assert read_book(path, input_format="gutenberg")[0].paragraphs[:3] == text
    path.write_text(MODERN[: MODERN.index("Produced")])
    assert read_book(path)[0].paragraphs == []


HEADER = (
    "The Project Gutenberg EBook of A Tale, by Nobody\n\n*** START OF THIS PROJECT GUTENBERG EBOOK A TALE ***\n\n\n"
)
FOOTER = "\n\n*** END OF THIS PROJECT GUTENBERG EBOOK A TALE ***\n"
# Wrapped paragraphs of three lines.
PROSE = [
    f"The wind blew over the fields of the village for the {number}th time in the\nsame year, and nobody was "
    "surprised, since everybody there had seen it\noften and had spoken of it at length."
    for number in range(40)
]
SHORT = [f'"I have said so {number} times," he said, and then he went away.' for number in range(40)]
VERSE = ["Tiger, tiger, burning bright\nIn the forests of the night,\nCould frame thy fearful symmetry?"] * 2


@pytest.mark.parametrize(
    ("removed", "kept"),
    [
        # Prose that begins a line like a credit, within a paragraph and at its start, or names e-books.
        (
            [],
            [
                *PROSE[:9],
                "It is the way of the world that men are often, as we have seen,\nproduced by chance.",
                *PROSE,
            ],
        ),
        (
            [],
            [*PROSE[:9], "produced from his pocket by the man\nwas a letter, which he read, and which he\nlaid down."],
        ),
        ([], [*PROSE[:9], "People who read e-books on trains are often as happy as we were then.", *PROSE]),
        (["Produced by Somebody and the Online Distributed\nProofreading Team"], PROSE),
        (["[This e-text was prepared by Somebody.]"], PROSE),
        # A note after text is removed alone, and text that mentions its words is text.
        ([], [*PROSE[:8], "[Transcriber's Note: A line is missing here.]\n", *PROSE]),
        ([], [*PROSE[:30], "TRANSCRIBER'S NOTE: The spelling is kept."]),
        ([], [*PROSE[:3], "The html version of the story was longer\nthan this one is, as we said.", *PROSE]),
        (["Produced by Somebody", "A TALE", "[Transcriber's note: As printed.]"], PROSE),
        # Only a note with a heading extends over empty lines.
        (["Transcriber's note: As printed."], [*PROSE[:5], "\n\nTWO", *PROSE]),
        (["Transcriber's Notes\n\nThe spelling is that of the book.\n\nSo is the grammar of all of it."], PROSE),
        (["    A note of the file,\n    which nobody@example.org wrote,\n    and which is indented"], PROSE),
        # A word of a sentence is not the heading of a table of contents.
        ([], [*PROSE[:2], "My uncle asked us to open the box, and to let him see all of its\ncontents.", *SHORT]),
        (["CONTENTS\n\nI. One\nII. Two"], SHORT),
        (["CONTENTS\n\nThe Tiger\nThe Lamb"], ["THE TIGER", *VERSE, "\nTHE LAMB", *VERSE]),
        (["A TALE\n\nby Nobody"], ["Chapter One", *PROSE]),
        ([], ["Chapter One", *PROSE]),
        (["A TALE"], ["I.", *PROSE]),
        (["A TALE"], ["By the window a woman sat and waited.", *PROSE]),
        (["Jane Doe", "A TALE"], PROSE),
    ],
)
def test_what_the_producers_wrote_is_removed_and_nothing_else(tmp_path, removed, kept):
    path = tmp_path / "a.txt"
    path.write_text(HEADER + "\n\n".join([*removed, "\n" * bool(removed) + kept[0], *kept[1:]]) + FOOTER)
    is_note = re.compile(r"\[?transcriber's note", re.IGNORECASE)
    expected = [" ".join(paragraph.split()) for paragraph in kept if not is_note.match(paragraph)]
    (book,) = read_book(path)
    assert book.paragraphs == expected
    # What is removed is counted.
    assert book.removed.lost["license"] > 0
    assert (book.removed.lost["notes"] > 0) == bool(removed or len(expected) < len(kept))


@pytest.mark.parametrize("begins", ["", '***START**THE SMALL PRINT!**START***\nWhy is this "Small Print!" here?\n\n'])
@pytest.mark.parametrize("rest", ["", "\n\nscanned in 1993\nend of file"])
def test_a_license_after_the_book(tmp_path, begins, rest):
    path = tmp_path / "a.txt"
    path.write_text(
        "\n\n".join([*PROSE, f"{begins}*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*{rest}\n"])
    )
    (book,) = read_book(path, input_format="gutenberg")
    assert book.paragraphs == [" ".join(paragraph.split()) for paragraph in PROSE]
    assert book.removed.lost["notes"] == 0


def test_a_poem_after_a_long_header_is_kept(tmp_path):
    path = tmp_path / "a.txt"
    header = "The Project Gutenberg Etext of A Poem\n\n" + "This is a line of the license.\n" * 200
    path.write_text(f"{header}*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n\n{VERSE[0]}\n")
    assert read_book(path)[0].paragraphs == [VERSE[0].replace("\n", " ")]


def test_text_that_is_taken_for_a_license_is_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(HEADER.replace("\n\n***", "\n\n" + "\n\n".join(PROSE * 10) + "\n\n***") + PROSE[0] + FOOTER)
    (book,) = read_book(path)
    assert book.removed.lost["license"] == 25_000
    assert book.removed.lost["notes"] > 10 * len(PROSE[0])


def test_all_lines_of_an_indented_note_are_removed(tmp_path):
    path = tmp_path / "a.txt"
    note = "    Send corrections of the file\n    to nobody@example.org or to\n    the directors of the library."
    # After the first lines, where notes remove the text before them too.
    path.write_text(HEADER + "\n\n".join([*PROSE * 2, note, *PROSE]) + FOOTER)
    assert read_book(path)[0].paragraphs == [" ".join(paragraph.split()) for paragraph in PROSE * 3]


def test_text_after_a_table_of_contents_without_a_gap_is_kept(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(HEADER + "\n\n".join(["CONTENTS", "I. One\nII. Two", *SHORT, "\n\nPART TWO", *PROSE]) + FOOTER)
    assert read_book(path)[0].paragraphs[: len(SHORT)] == SHORT


def test_a_mail_address_in_a_book_without_empty_lines_removes_one_paragraph(tmp_path):
    paragraphs = [f"    {paragraph}" for paragraph in [*PROSE, *PROSE]]
    path = tmp_path / "a.txt"
    path.write_text(
        HEADER + "\n".join([*paragraphs, "    Write to nobody@example.org about the\nfile.", *PROSE[:1]]) + FOOTER
    )
    assert read_book(path)[0].paragraphs == [" ".join(paragraph.split()) for paragraph in paragraphs]


def test_books_of_the_old_layout_in_one_file(tmp_path):
    header = "The Project Gutenberg Etext of {}, by Nobody\n\n" + "This is a line of the license.\n" * 60
    header += "*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n\n\n"
    path = tmp_path / "a.txt"
    path.write_text(
        "".join(
            header.format(name) + "\n\n".join(PROSE) + f"\n\nEnd of the Project Gutenberg Etext of {name}\n\n\n"
            for name in ("Emma", "Persuasion")
        )
    )
    books = read_book(path)
    assert [book.title for book in books] == ["Emma", "Persuasion"]
    assert [book.paragraphs for book in books] == [[" ".join(paragraph.split()) for paragraph in PROSE]] * 2


ARTICLE = [
    "The history of electronic books began in 1971.",
    "Michael Hart typed the Declaration of Independence.",
    "He founded Project Gutenberg, whose collection grew slowly at first.",
    "In 1989 there were ten texts.",
    "Readers could download a Gutenberg text as an e-book by 2003.",
    "Many libraries followed its example.",
]


def test_articles_that_mention_gutenberg_are_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(ARTICLE) + "\n")
    assert recognize(str(path), path.read_bytes()).name == "text"
    assert read_book(path)[0].paragraphs == ARTICLE
    # Without the marker of a header, only the blocks that mention Project Gutenberg are removed.
    (document,) = read_book(path, input_format="gutenberg")
    assert document.paragraphs == [*ARTICLE[:2], ARTICLE[3], *ARTICLE[4:]]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("\ufeff\r\n\r\nThe Project Gutenberg EBook of Emma, by Jane Austen", "gutenberg"),
        ("Project Gutenberg's Emma, by Jane Austen", "gutenberg"),
        ("***The Project Gutenberg Etext of Emma***", "gutenberg"),
        ("Emma\r\n\r\n*** START OF THE PROJECT GUTENBERG EBOOK EMMA ***", "gutenberg"),
        ("Emma\n\n*SMALL PRINT! Ver.12.12.93*END*", "gutenberg"),
        ("Project Gutenberg is a library of e-books.", "text"),
        ("Emma\n\nThe Project Gutenberg e-book of it is popular.", "text"),
    ],
)
def test_books_are_recognized_by_their_structure(head, expected):
    assert recognize("a.txt", head.encode("utf-8")).name == expected


def test_paragraphs_verse_and_lists():
    join = wrapped_lines.join_paragraphs
    prose = ["A line that was wrapped by hand at", "some width goes on with the", "next one."]
    assert join(prose) == [" ".join(prose)]
    verse = ["Tyger Tyger, burning bright,", "In the forests of the night;"]
    assert join([*verse, "", "", *verse]) == [" ".join(verse)] * 2
    assert join(["Contents", "The Shepherdess", "Via et Veritas", "Cradle-Song"]) == [
        "Contents",
        "The Shepherdess",
        "Via et Veritas",
        "Cradle-Song",
    ]
    speeches = ["  Barnardo. Who's there?", "  Fran. Nay answer me: Stand & vnfold", "your selfe"]
    assert join(speeches) == ["Barnardo. Who's there?", "Fran. Nay answer me: Stand & vnfold your selfe"]
    # Lines with a hanging indent are one paragraph.
    assert join(["[7] Bouillier, Histoire,", "    1868. Haldane, Life."]) == [
        "[7] Bouillier, Histoire, 1868. Haldane, Life."
    ]


@pytest.mark.parametrize(
    ("lines", "joined"),
    [
        (["He took his note-", "book, his old note-book, along."], "He took his note-book, his old note-book, along."),
        (["It was fortun-", "ately so, fortunately for all."], "It was fortunately so, fortunately for all."),
        (
            ["Vor- und zurueck-", "oder vorwaerts, immerzu vorwaerts."],
            "Vor- und zurueck- oder vorwaerts, immerzu vorwaerts.",
        ),
        (["She came--", "and went away again at once."], "She came--and went away again at once."),
        (["The Anglo-", "Saxons came over the sea, then."], "The Anglo-Saxons came over the sea, then."),
    ],
)
def test_hyphens_at_line_ends(lines, joined):
    assert wrapped_lines.join_paragraphs(lines) == [joined]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("CHAPTER I", True),
        ("Chapter 61", True),
        ("CHAPTER XII. THE MAN WITH THE TWISTED LIP", True),
        ("Erstes Kapitel", True),
        ("Fuenfter Akt", True),
        ("Kapitel 3", True),
        ("ACT II.  SCENE I.", True),
        ("XIV", True),
        ("IX.", True),
        ("PREFACE.", True),
        ("C.", False),
        ("IL PENSEROSO", False),
        ("Chapter and verse were given.", False),
        ("I came home. He slept.", False),
        ("MIX", False),
        ("In the third act of the play", False),
    ],
)
def test_chapter_heads(head, expected):
    assert gutenberg.is_chapter_head([head, ""]) is expected


@given(st.lists(st.text("ab-I. _*[]\t(A", max_size=30), max_size=20))
def test_joining_loses_no_letter_and_splitting_no_line(lines):
    lines = gutenberg.split_lines("\n".join(lines))
    for part in (lines, gutenberg._without_contents(lines)):
        joined = "".join(wrapped_lines.join_paragraphs(part))
        assert letters(joined) == letters("".join(part))
    flat = [line for _, chapter in gutenberg.split_chapters(lines) for line in chapter]
    assert flat == lines


@given(st.text())
def test_any_text_is_read(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("any") / "a.txt"
    path.write_bytes(text.encode("utf-8"))
    (document,) = read_book(path, input_format="gutenberg")
    assert all(paragraph.strip() for paragraph in document.paragraphs)


def test_real_books_in_one_file_are_read_as_they_are_apart(shared_data, tmp_path):
    names = ("pg1342.txt", "pg74.txt")
    folder = shared_data / "gutenberg"
    (tmp_path / "all.txt").write_bytes(b"".join((folder / name).read_bytes() for name in names))
    apart = [document for name in names for document in read_file(str(folder / name), ReadOptions("gutenberg"))]
    together = list(read_file(str(tmp_path / "all.txt"), ReadOptions("gutenberg")))
    assert [document.paragraphs for document in together] == [document.paragraphs for document in apart]
    assert [document.title for document in together] == [document.title for document in apart]
