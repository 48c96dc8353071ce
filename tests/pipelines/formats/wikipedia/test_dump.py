"""Tests of the reader of dumps: pages, rejected pages, corrupt files, attacks, and splits of one file."""

import bz2
import collections
import gzip
import logging
import lzma
import random
import re
import time

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats import frames, recognize
from beambert.pipelines.formats.fields import TRUNCATED
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.formats.wikipedia import dump as reader
from beambert.pipelines.sources.readers import read_file

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo>
    <namespaces>
      <namespace key="0" case="first-letter" />
      <namespace key="1" case="first-letter">Diskussion</namespace>
      <namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace>
    </namespaces>
  </siteinfo>
"""
TAIL = "</mediawiki>\n"


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def page(title: str, text: str, namespace: int | None = 0, extra: str = "") -> str:
    number = "" if namespace is None else f"<ns>{namespace}</ns>"
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    {number}\n    <id>1</id>\n{extra}    <revision>\n"
        f'      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def dump(*pages: str, head: str = HEAD) -> str:
    return head + "".join(pages) + TAIL


def read(path, content: str | bytes, **options):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_file(str(path), ReadOptions(**options)))


def outline(documents):
    return [(document.title, document.paragraphs, document.rejected) for document in documents]


def test_pages_become_documents_or_are_rejected_with_a_reason(tmp_path):
    content = dump(
        page("Hund & Katze", "'''Hund''' <b>und</b> [[Katze|Katzen]] &amp; \"mehr\".\n\n== Weblinks ==\nx"),
        page("Weiter", "#WEITERLEITUNG [[Hund]]", extra='    <redirect title="Hund" />\n'),
        page("Alt", "#redirect [[Hund]]"),
        page("Diskussion:Hund", "Worte.", 1),
        page("Diskussion:Alt", "Worte.", None),
        page("Bank", "'''Bank''' steht für:\n* [[Sitzbank]]\n{{Begriffsklärung}}"),
        page("Q1", "{}", extra="    <model>wikibase-item</model>\n"),
        page("Tief", "{{" * 100_000),
        page("Leer", ""),
    )
    documents = read(tmp_path / "dewiki.xml", content)
    assert outline(documents) == [
        ("Hund & Katze", ['Hund und Katzen & "mehr".'], ""),
        ("Weiter", [], reader.REDIRECT),
        ("Alt", [], reader.REDIRECT),
        ("Diskussion:Hund", [], reader.NAMESPACE),
        ("Diskussion:Alt", [], reader.NAMESPACE),
        ("Bank", [], reader.DISAMBIGUATION),
        ("Q1", [], reader.NOT_WIKITEXT),
        ("Tief", [], reader.TOO_COMPLEX),
        ("Leer", [], ""),
    ]
    assert {document.language for document in documents} == {"de"}
    assert {document.source for document in documents} == {str(tmp_path / "dewiki.xml")}


@pytest.mark.parametrize(
    ("language", "template"),
    [
        ("en", "{{disambiguation}}"), ("en", "{{Disambig|geo}}"), ("en", "{{hndis|Smith, John}}"), ("en",
        "{{human_name disambiguation}}"),
        ("de", "{{Begriffsklärung}}"), ("fr", "{{Homonymie}}"), ("es", "{{desambiguación}}"), ("it", "{{Disambigua}}"),
        ("pt", "{{desambiguação}}"), ("nl", "{{dp}}"), ("pl", "{{Ujednoznacznienie}}"), ("ru", "{{неоднозначность}}"),
        ("ja", "{{aimai}}"), ("zh", "{{消歧义}}"), ("sv", "{{förgrening}}"), ("xx", "__DISAMBIG__"),
    ],
)  # fmt: skip
def test_disambiguation_pages_by_language(tmp_path, language, template):
    head = HEAD.replace('"de"', f'"{language}"')
    (document,) = read(tmp_path / "a.xml", dump(page("A", f"Words.\n{template}"), head=head))
    assert document.rejected == reader.DISAMBIGUATION
    (document,) = read(tmp_path / "a.xml", dump(page("A", "Words {{disambiguation needed}}."), head=head))
    assert document.rejected == ""


def test_entities_are_decoded_once(tmp_path):
    content = dump(page("A", "x")).replace(
        ">x</text>",
        ">a &#65;&#x42; &amp;lt; &#38;lt; &#60;!-- c --&#62; &apos;d&apos; &unknown; &#0;&#xD800;&#1114112;</text>",
    )
    (document,) = read(tmp_path / "a.xml", content)
    assert document.paragraphs == ["a AB < < 'd' &unknown; \ufffd\ufffd\ufffd"]
    # Text that is escaped twice shows a tag; text that is escaped once is the tag.
    twice = "&#38;lt;ref&#38;gt; &amp;lt;ref&amp;gt; &#38;amp;lt;"
    content = dump(page("A", "x")).replace(">x</text>", f">{twice} &lt;ref&gt;note&lt;/ref&gt;</text>")
    (document,) = read(tmp_path / "a.xml", content)
    assert document.paragraphs == ["<ref> <ref> &lt;"]


def test_entity_attacks_are_inert(tmp_path):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 30))
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    doctype = f'<!DOCTYPE mediawiki [<!ENTITY l0 "ha">{laughs}<!ENTITY x SYSTEM "file://{secret}">]>\n'
    start = time.process_time()
    content = doctype + dump(page("A", "Words BOMB and FILE.")).replace("BOMB", "&l29;").replace("FILE", "&x;")
    (document,) = read(tmp_path / "a.xml", content, input_format="wikipedia")
    assert document.paragraphs == ["Words &l29; and &x;."]
    assert time.process_time() - start < 1


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz"])
def test_encodings(tmp_path, suffix):
    compress = {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress}[suffix]
    text = dump(page("Größe", "Ein Wort über 漢字."), page("Zwei", "Wort."))
    documents = read(tmp_path / f"a.xml{suffix}", compress(text.encode("utf-8-sig")))
    assert outline(documents) == [("Größe", ["Ein Wort über 漢字."], ""), ("Zwei", ["Wort."], "")]
    with pytest.raises(SourceError, match="is UTF-16; convert it first: iconv -f utf-16"):
        read(tmp_path / f"b.xml{suffix}", compress(text.encode("utf-16")))


def test_only_bytes_that_are_not_utf8_are_replaced(tmp_path):
    content = dump(page("A", "Worte ? hier."), page("B", "Wort.")).encode().replace(b"?", b"\xff")
    assert outline(read(tmp_path / "a.xml", content)) == [("A", ["Worte \ufffd hier."], ""), ("B", ["Wort."], "")]


COMPRESS = {
    "": bytes,
    ".bz2": lambda data: bz2.compress(data, 1),
    ".gz": gzip.compress,
    ".xz": lambda data: lzma.compress(data, preset=0),
    ".zst": lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_cut_files_give_every_whole_page_and_a_warning(tmp_path, caplog, suffix):
    generator = random.Random(1)
    pages = [page(f"P{n}", " ".join(str(generator.random()) for _ in range(50))) for n in range(600)]
    whole = dump(*pages).encode()
    compressed = COMPRESS[suffix](whole)
    with caplog.at_level(logging.WARNING, "beambert"):
        documents = read(tmp_path / f"a.xml{suffix}", compressed[: len(compressed) * 2 // 3], input_format="wikipedia")
    *kept, last = documents
    assert last.rejected == TRUNCATED
    assert len(kept) >= len(pages) // 2
    assert outline(kept) == outline(read(tmp_path / "b.xml", whole))[: len(kept)]
    assert "a.xml" in caplog.text


def test_a_dump_cut_between_pages_is_reported(tmp_path, caplog):
    documents = read(tmp_path / "a.xml", HEAD + page("A", "Wort."))
    assert outline(documents) == [("A", ["Wort."], ""), ("", [], TRUNCATED)]
    assert "</mediawiki> is missing at its end" in caplog.text


def test_a_page_cut_in_the_middle_does_not_swallow_the_next(tmp_path):
    content = dump(page("A", "Wort.").replace("</page>", ""), page("B", "Wort."))
    assert outline(read(tmp_path / "a.xml", content)) == [("A", [], TRUNCATED), ("B", ["Wort."], "")]


def test_a_page_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "_MAX_PAGE_BYTES", 1 << 20)
    content = dump(page("A", "Wort."), page("Endless", "a" * 3_000_000), page("B", "Wort."))
    assert outline(read(tmp_path / "a.xml", content)) == [
        ("A", ["Wort."], ""), ("Endless", [], reader.TOO_COMPLEX), ("B", ["Wort."], ""),
    ]  # fmt: skip


def test_a_file_that_is_not_a_dump_is_refused(tmp_path):
    for name, content in (("a.xml", b"<html></html>"), ("a.txt", b"Words."), ("a.xml.bz2", bz2.compress(b"Words."))):
        with pytest.raises(SourceError, match=r"is not a MediaWiki dump: .*--input_format"):
            read(tmp_path / name, content, input_format="wikipedia")
    with pytest.raises(SourceError, match=r"a.xml.bz2 is not a complete .bz2 file"):
        read(tmp_path / "a.xml.bz2", b"not compressed at all, but long enough", input_format="wikipedia")
    with pytest.raises(SourceError, match=r"none.xml cannot be opened"):
        list(read_file(str(tmp_path / "none.xml"), ReadOptions("wikipedia")))


def test_dumps_are_recognized_by_content():
    assert recognize("a", HEAD.encode()).name == "wikipedia"
    assert recognize("a.xml.bz2", b"\xef\xbb\xbf<?xml version='1.0'?>\n" + HEAD.encode()).name == "wikipedia"
    assert recognize("a", b"A text about <mediawiki> tags").name == "text"


# ---- Splits of one file


def pages_of_many_sizes(count: int, seed: int = 0) -> list[str]:
    generator = random.Random(seed)
    return [page(f"P{n}", f"Wort {n}. " + "x<y " * generator.randrange(400)) for n in range(count)]


def multistream(pages: list[str], a_stream: int, level: int = 9) -> bytes:
    blocks = [HEAD, *("".join(pages[start : start + a_stream]) for start in range(0, len(pages), a_stream)), TAIL]
    return b"".join(bz2.compress(block.encode(), level) for block in blocks)


def parts_of(path, cuts: list[int]):
    edges = [0, *sorted(cuts)]
    stops = [*edges[1:], None]
    return [
        d for start, stop in zip(edges, stops, strict=True) for d in read_file(str(path), ReadOptions(), start, stop)
    ]


def short(documents):
    return [(title, len(str(paragraphs)), rejected) for title, paragraphs, rejected in outline(documents)]


KINDS = {
    "multistream": lambda pages: multistream(pages, 7),
    "level 1": lambda pages: multistream(pages, 3, 1),
    "single stream": lambda pages: bz2.compress(dump(*pages).encode()),
    "streams cut anywhere": lambda pages: b"".join(
        bz2.compress(dump(*pages).encode()[start : start + 3001])
        for start in range(0, len(dump(*pages).encode()), 3001)
    ),
    "empty streams between": lambda pages: multistream(pages, 7).replace(
        b"BZh91AY&SY", bz2.compress(b"") + b"BZh91AY&SY"
    ),
    "plain": lambda pages: dump(*pages).encode(),
}


@pytest.fixture(scope="module", params=KINDS)
def stored(request, tmp_path_factory):
    pages = pages_of_many_sizes(60)
    content = KINDS[request.param](pages)
    path = tmp_path_factory.mktemp("stored") / f"wiki.xml{'' if 'plain' in request.param else '.bz2'}"
    path.write_bytes(content)
    return path, len(content), short(read_file(str(path), ReadOptions()))


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_each_page_is_read_once_for_any_splits(stored, data):
    path, size, whole = stored
    assert [title for title, *_ in whole] == [f"P{n}" for n in range(60)]
    cuts = data.draw(st.lists(st.integers(1, size - 1), unique=True, max_size=12))
    assert short(parts_of(path, cuts)) == whole


def test_marks_across_chunks_are_found(stored, monkeypatch):
    path, size, whole = stored
    monkeypatch.setattr(frames, "CHUNK_BYTES", 37)
    assert short(parts_of(path, list(range(size // 23, size, size // 23)))) == whole


def test_splits_at_every_byte_around_a_boundary(tmp_path):
    content = multistream(pages_of_many_sizes(6), 2)
    path = tmp_path / "wiki.xml.bz2"
    path.write_bytes(content)
    whole = outline(read_file(str(path), ReadOptions()))
    starts = [match.start() for match in re.finditer(rb"BZh91AY&SY", content)]
    for cut in (cut for start in starts[1:] for cut in range(start - 11, start + 12)):
        assert outline(parts_of(path, [cut])) == whole, cut
    plain = tmp_path / "wiki.xml"
    plain.write_bytes(dump(*pages_of_many_sizes(3)).encode())
    whole = outline(read_file(str(plain), ReadOptions()))
    for match in re.finditer(rb"</?page>", plain.read_bytes()):
        for cut in range(match.start() - 1, match.end() + 2):
            assert outline(parts_of(plain, [cut])) == whole, cut


def test_bytes_that_only_look_like_a_stream(tmp_path, caplog):
    """Plant the first ten bytes of a stream between two streams, with and without other bytes after them.

    No page is lost or read twice.
    """
    pages = pages_of_many_sizes(20)
    streams = [bz2.compress(block.encode()) for block in (HEAD, "".join(pages[:10]), "".join(pages[10:]), TAIL)]
    for planted in (b"BZh91AY&SY", b"BZh91AY&SY" + bytes(range(256)), b"BZh11AY&SY" * 3 + b"\0" * 40):
        content = streams[0] + streams[1] + planted + streams[2] + streams[3]
        path = tmp_path / "wiki.xml.bz2"
        path.write_bytes(content)
        place = len(streams[0] + streams[1])
        whole = outline(read_file(str(path), ReadOptions()))
        assert [entry for entry in whole if entry[0]] == [
            (f"P{n}", *rest) for n, (_, *rest) in enumerate(e for e in whole if e[0])
        ]
        assert len([entry for entry in whole if entry[0]]) == 20
        assert {entry for entry in ((title, reason) for title, _, reason in whole) if not entry[0]} == {("", TRUNCATED)}
        for cut in range(place - 2, place + len(planted) + 3):
            titles = [title for title, *_ in outline(parts_of(path, [cut])) if title]
            assert titles == [f"P{n}" for n in range(20)], cut
    assert "is corrupt" in caplog.text


def test_a_search_inside_a_stream_finds_nothing_that_decodes(tmp_path, monkeypatch):
    """Search with a pattern that matches every few bytes, so that splits try many false starts inside streams."""
    path = tmp_path / "wiki.xml.bz2"
    content = multistream(pages_of_many_sizes(60), 20)
    path.write_bytes(content)
    whole = outline(read_file(str(path), ReadOptions()))
    monkeypatch.setattr(reader, "_STREAM", re.compile(rb"(?s)BZh|[\x00-\x0f]..", re.DOTALL))
    cuts = list(range(500, len(content), 700))
    found = [entry for entry in outline(parts_of(path, cuts)) if entry[0]]
    assert sorted(found, key=lambda entry: int(entry[0][1:])) == whole


@pytest.mark.parametrize("damage", ["first block", "magic", "lost bytes"])
def test_a_corrupt_stream_loses_its_pages_only(tmp_path, caplog, damage):
    pages = pages_of_many_sizes(40)
    content = bytearray(multistream(pages, 10))
    start = [match.start() for match in re.finditer(rb"BZh91AY&SY", bytes(content))][2]
    if damage == "first block":
        content[start + 200] ^= 0xFF
    elif damage == "magic":
        content[start] ^= 0xFF
    else:
        del content[start + 100 : start + 150]
    path = tmp_path / "wiki.xml.bz2"
    documents = outline(read(path, bytes(content)))
    expected = [f"P{n}" for n in (*range(10), *range(20, 40))]
    assert [title for title, *_ in documents if title] == expected
    assert ("", [], TRUNCATED) in documents
    assert "wiki.xml.bz2" in caplog.text
    generator = random.Random(0)
    for _ in range(20):
        found = outline(parts_of(path, generator.sample(range(1, len(content)), 3)))
        assert collections.Counter(map(str, found)) == collections.Counter(map(str, documents))


# ---- Real dumps


def test_the_samples_are_read_whole(shared_data, caplog):
    counts = {}
    for name in ("enwiki-206-pages", "enwiki-2022-251-pages-truncated"):
        path = shared_data / "wiki-dump" / f"{name}.xml.bz2"
        documents = list(read_file(str(path), ReadOptions()))
        counts[name] = collections.Counter(document.rejected for document in documents)
        titles = re.findall(rb"<title>(.*?)</title>", bz2.decompress(path.read_bytes()))
        assert [document.title for document in documents if document.title] == [
            title.decode().replace("&amp;", "&").replace("&quot;", '"').replace("&#039;", "'") for title in titles
        ]
        text = "\n".join(p for document in documents for p in document.paragraphs)
        for markup in (
            "[[",
            "]]",
            "<ref",
            "</",
            "{|",
            "|}",
            "''",
            "&nbsp;",
            "&lt;",
            "__NOTOC__",
            "formula_1",
            "thumb|",
        ):
            assert markup not in text, markup
    assert counts["enwiki-206-pages"] == {"": 98, "redirect": 99, "disambiguation": 8, "namespace": 1}
    assert counts["enwiki-2022-251-pages-truncated"] == {
        "": 130, "redirect": 111, "disambiguation": 9, "namespace": 1, "truncated": 1,
    }  # fmt: skip
    assert "truncated.xml.bz2 is truncated" in caplog.text
