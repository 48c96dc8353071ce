"""Tests of the package wikiextractor as extractor for pages of a dump, and of its process; most need the package."""

import bz2
import collections
import importlib.metadata
import io
import itertools
import logging
import re
import subprocess
import sys

import pytest

from beambert import cli
from beambert.pipelines.corpus import corpus_manifest
from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.input_format import ReadOptions
from beambert.pipelines.formats.wikipedia import dump, wikiextractor_process
from beambert.pipelines.formats.wikipedia.wikitext import MAX_CHARACTERS
from beambert.pipelines.sources.readers import read_file
from tests.pipelines.formats.wikipedia.test_dump import dump as dump_of
from tests.pipelines.formats.wikipedia.test_dump import page

MODULE = "beambert.pipelines.formats.wikipedia.wikiextractor_process"
WITH_PACKAGE = ReadOptions("wikipedia", wikitext_extractor="wikiextractor")
HEAD = '<mediawiki xml:lang="en"><siteinfo><namespace key="6">Bildo</namespace></siteinfo>\n'


@pytest.fixture
def package():
    pytest.importorskip("wikiextractor", reason="the extra [wikiextractor] is not installed")


def write(path, *pages: str):
    path.write_text(dump_of(*pages, head=HEAD), encoding="utf-8")
    return path


def outline(path, options: ReadOptions = WITH_PACKAGE):
    return [(document.title, document.paragraphs, document.rejected) for document in read_file(str(path), options)]


def text_of(tmp_path, wikitext: str) -> list[str]:
    ((_, paragraphs, rejected),) = outline(write(tmp_path / "a.xml", page("Dog", wikitext)))
    assert not rejected
    return paragraphs


def patch_program(monkeypatch, patch: str) -> None:
    """Run the program of the extractor's process with statements before its `main`."""
    program = f"import os, time, {MODULE} as package\nright = package.to_paragraphs\n{patch}\npackage.main()"
    monkeypatch.setattr(wikiextractor_process, "_COMMAND", (sys.executable, "-P", "-c", program))


@pytest.fixture
def processes(monkeypatch):
    """The processes that reading has started."""
    started = []

    class Recorded(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            started.append(self)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(wikiextractor_process.subprocess, "Popen", Recorded)
    return started


# ---- Text


@pytest.mark.parametrize(
    ("wikitext", "paragraphs"),
    [
        # The package's own features: lines, quotes, lists, headings, tables, formulas, code.
        ("The '''dog''' is an ''animal''.\n\n== History ==\nIt is old.\n* a list",
         ['The dog is an "animal".', "It is old."]),
        ("A\n{|\n| cell\n|}\nB <ref>note</ref> is.", ["A", "B is."]),
        ("A <span>big</span> <a href='x'>dog</a>.", ["A big dog."]),
        ("The sum <math>a+b</math> and <code>x</code>.", ["The sum formula_1 and codice_1."]),
        # Entities are decoded once; escaped tags are text.
        ("&amp;lt; is AT&T's &amp; <b>sign</b> &lt;ref&gt;.", ["&lt; is AT&T's & sign <ref>."]),
        # Links with a colon are words, except files, categories and other editions.
        ("See [[Alien: Covenant]], [[2001: A Space Odyssey|2001]] and [[wikt:dog|dog]].",
         ["See Alien: Covenant, 2001 and dog."]),
        ("A dog.[[File:Dog.jpg|thumb|A [[big]] dog]] [[Bildo:Dog.jpg|a dog]] [[de:Hund]] [[Category:Dogs]]",
         ["A dog."]),
        # Templates show the text of beambert's rules.
        ("The {{lang|fr|chien}} is {{convert|5|km|mi}} from {{nowrap|{{lang|fr|[[Paris|la ville]]}}}}.",
         ["The chien is 5 km from la ville."]),
        ("In {{CURRENTYEAR}}{{unknown|a}}, {{PAGENAME}}.", ["In, Dog."]),
        ("One {{abbr|a{{!}}b|long}} word.", ["One a|b word."]),
        ("{{Infobox\n| name = Dog\n}}\nText.", ["Text."]),
        # A surrogate, which no encoding can write.
        ("A &#xD800; sign.", ["A \ufffd sign."]),
    ],
)  # fmt: skip
def test_text_of_a_page(package, tmp_path, wikitext, paragraphs):
    assert text_of(tmp_path, wikitext) == paragraphs


def test_templates_deeper_than_the_package_expands_are_dropped(package, tmp_path):
    def nested(depth: int) -> str:
        return "Deep " + "{{nowrap|" * depth + "word" + "}}" * depth + "."

    assert text_of(tmp_path, nested(29)) == ["Deep word."]
    assert text_of(tmp_path, nested(31)) == ["Deep."]


# ---- The reader


def test_the_process_runs_this_module():
    assert wikiextractor_process._COMMAND[-2:] == ["-m", MODULE] == ["-m", wikiextractor_process.__name__]


PAGES = [
    page("Dog", "A dog."),
    page("Way", "#REDIRECT [[Dog]]"),
    page("Talk:Dog", "Words.", 1),
    page("Bank", "Bank:\n* [[Seat]]\n{{disambiguation}}"),
    page("Empty", ""),
    page("List", "* One\n* Two"),
    page("Cat", "A cat."),
]


def test_pages_are_rejected_and_counted_as_without_the_package(package, tmp_path):
    path = write(tmp_path / "a.xml", *PAGES)
    assert outline(path) == outline(path, ReadOptions()) == [
        ("Dog", ["A dog."], ""),
        ("Way", [], dump.REDIRECT),
        ("Talk:Dog", [], dump.NAMESPACE),
        ("Bank", [], dump.DISAMBIGUATION),
        ("Empty", [], ""),
        ("List", [], ""),
        ("Cat", ["A cat."], ""),
    ]  # fmt: skip


@pytest.mark.parametrize("suffix", ["", ".bz2"])
def test_the_splits_of_a_dump_have_the_same_pages_together(package, tmp_path, suffix):
    path = write(tmp_path / "a.xml", *PAGES)
    content = path.read_bytes()
    if suffix:
        parts = [content[start : start + 300] for start in range(0, len(content), 300)]
        content = b"".join(map(bz2.compress, parts))
    path = tmp_path / f"b.xml{suffix}"
    path.write_bytes(content)
    edges = [*range(0, len(content), 97), None]
    options = ReadOptions(wikitext_extractor="wikiextractor")
    splits = [
        (document.title, document.paragraphs, document.rejected)
        for start, stop in itertools.pairwise(edges)
        for document in dump.read_range(io.BytesIO(content), str(path), options, start, stop)
    ]
    assert splits == outline(path) == outline(write(tmp_path / "a.xml", *PAGES))


def test_the_process_ends_with_the_reader(package, tmp_path, processes):
    path = write(tmp_path / "a.xml", *PAGES)
    outline(path)
    documents = read_file(str(path), WITH_PACKAGE)
    next(documents)
    documents.close()
    first, second = processes
    assert first.poll() == second.poll() == 0
    # A file without articles starts no process.
    outline(write(tmp_path / "b.xml", PAGES[1]))
    assert len(processes) == 2


# ---- Bad pages


def test_a_page_that_is_too_large_is_not_given_to_the_package(tmp_path, processes):
    path = write(tmp_path / "a.xml", page("Large", "a" * (MAX_CHARACTERS + 1)))
    assert outline(path) == [("Large", [], dump.TOO_COMPLEX)]
    assert not processes


@pytest.mark.parametrize("wikitext", ["=" * 20_000, "<ref " * 20_000, "[http://a" * 10_000])
def test_a_page_that_takes_too_long_is_rejected(package, tmp_path, monkeypatch, processes, wikitext):
    """Use pages for which the package's time grows faster than their length."""
    patch_program(monkeypatch, "package.MAX_SECONDS = 0.5")
    path = write(tmp_path / "a.xml", PAGES[0], page("Slow", wikitext), PAGES[-1])
    assert outline(path) == [("Dog", ["A dog."], ""), ("Slow", [], dump.TOO_COMPLEX), ("Cat", ["A cat."], "")]
    assert len(processes) == 1


@pytest.mark.parametrize(
    ("fault", "rejected", "starts"),
    [
        ("raise ValueError('odd markup')", dump.EXTRACTION_FAILED, 1),
        ("raise RecursionError", dump.TOO_COMPLEX, 1),
        ("raise MemoryError", dump.TOO_COMPLEX, 1),
        # The page is tried twice, then a third process starts for the next page.
        ("os._exit(9)", dump.EXTRACTION_FAILED, 3),
    ],
)
def test_a_page_on_which_the_package_fails_does_not_end_the_job(
    package, tmp_path, monkeypatch, processes, caplog, fault, rejected, starts
):
    patch_program(
        monkeypatch,
        f"""
def fails(text, title, *more):
    print("Output of the package is no reply.", flush=True)
    if title == "Bad":
        {fault}
    return right(text, title, *more)
package.to_paragraphs = fails""",
    )
    path = write(tmp_path / "a.xml", PAGES[0], page("Bad", "Text."), PAGES[-1])
    with caplog.at_level(logging.WARNING, "beambert"):
        assert outline(path) == [("Dog", ["A dog."], ""), ("Bad", [], rejected), ("Cat", ["A cat."], "")]
    assert len(processes) == starts
    assert ("a.xml: the page 'Bad' cannot be extracted" in caplog.text) == (rejected == dump.EXTRACTION_FAILED)


def test_a_page_is_tried_again_after_its_process_was_killed(package, tmp_path, processes):
    path = write(tmp_path / "a.xml", PAGES[0], PAGES[-1])
    documents = read_file(str(path), WITH_PACKAGE)
    assert next(documents).paragraphs == ["A dog."]
    processes[0].kill()
    processes[0].wait()
    assert [document.paragraphs for document in documents] == [["A cat."]]
    assert len(processes) == 2


# ---- Without the package


@pytest.mark.parametrize("installed", [None, "3.0.6"])
@pytest.mark.parametrize("job", ["submission", "worker"])
def test_without_the_package_one_line_has_the_remedy(tmp_path, monkeypatch, capsys, installed, job):
    version = importlib.metadata.version

    def of(name):
        if name != "wikiextractor":
            return version(name)
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    path = write(tmp_path / "a.xml", *PAGES)
    monkeypatch.setattr(importlib.metadata, "version", of)
    problem = f"{installed} is installed" if installed else "it is not installed"
    expected = f"--wikitext_extractor wikiextractor requires wikiextractor 3.1.0 (license AGPL-3.0), but {problem}"
    remedy = "run pip install 'beambert[wikiextractor]'"
    if job == "worker":
        with pytest.raises(SourceError) as error:
            outline(path)
        assert str(error.value) == f"{expected} on this machine, which reads the dump; {remedy}"
        return
    argv = ["corpus", "--input", str(path), "--output", str(tmp_path / "o"), "--wikitext_extractor", "wikiextractor"]
    assert cli.main(argv) == 1
    assert capsys.readouterr().err == f"beambert corpus: error: {expected}; {remedy}\n"
    assert not (tmp_path / "o").exists()


def test_a_package_that_cannot_be_imported_ends_the_job(package, tmp_path, monkeypatch):
    monkeypatch.setattr(wikiextractor_process, "_COMMAND", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(SourceError, match=r"cannot be imported \(exit code 3\); reinstall it: pip install"):
        outline(write(tmp_path / "a.xml", *PAGES))


# ---- The command


def test_the_corpus_records_the_extractor_and_resumes_with_no_other(package, tmp_path, capsys):
    path, output = write(tmp_path / "a.xml", *PAGES), tmp_path / "corpus"
    argv = ["corpus", "--input", str(path), "--output", str(output), "--vocab_size", "16", "--validation_fraction", "0"]
    for _ in range(2):
        assert cli.main([*argv, "--wikitext_extractor", "wikiextractor"]) == 0
    assert "is up to date" in capsys.readouterr().out
    assert corpus_manifest.load(str(output)).options["read"]["wikitext_extractor"] == "wikiextractor"
    assert cli.main(argv) == 1
    expected = "(read.wikitext_extractor: 'wikiextractor' recorded, 'beambert' requested); choose another --output"
    assert expected in capsys.readouterr().err


# ---- Real dumps


@pytest.mark.parametrize("name", ["enwiki-206-pages", "enwiki-2022-251-pages-truncated"])
def test_real_pages_have_the_words_that_our_extractor_keeps(package, shared_data, name):
    path = shared_data / "wiki-dump" / f"{name}.xml.bz2"
    ours = list(read_file(str(path), ReadOptions()))
    theirs = list(read_file(str(path), WITH_PACKAGE))
    assert [(d.title, d.rejected, d.language, d.source) for d in theirs] == [
        (d.title, d.rejected, d.language, d.source) for d in ours
    ]
    words, others = (
        collections.Counter(re.findall(r"\w+", " ".join(p for d in documents for p in d.paragraphs)))
        for documents in (ours, theirs)
    )
    assert (words & others).total() > 0.995 * max(words.total(), others.total())
    text = "\n".join(p for document in theirs for p in document.paragraphs)
    for markup in ("[[", "<ref", "<nowiki", "{|", "|}", "''", "&nbsp;", "&lt;", "__NOTOC__", "thumb|"):
        assert markup not in text, markup
