"""The steps from a document of a file to a record: clean, segment, reject, identify the language, decontaminate.

Pure functions. A document that a step rejects passes the later ones unchanged.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

from beambert.pipelines.cleaning import rules
from beambert.pipelines.cleaning.decontamination import find_shared_ngram, load_evaluation
from beambert.pipelines.cleaning.document_rules import rejection_reason
from beambert.pipelines.cleaning.language_identification import is_other_language, main_language
from beambert.pipelines.cleaning.residual_markup import HTML_TAGS, has_html
from beambert.pipelines.cleaning.rules import CleaningOptions
from beambert.pipelines.corpus.records import Record
from beambert.pipelines.documents import Document, Removed, identity
from beambert.pipelines.errors import SourceError
from beambert.pipelines.segmentation.segmenters import document_sentences, truncate_sentences

SNIPPET_CHARACTERS = 200
# Dropped paragraphs listed per rule and document, so that the list does not outweigh the text in the shuffle.
_MAX_DROPPED_LISTED = 3


def clean_document(document: Document, options: CleaningOptions) -> Document:
    """Apply the paragraph rules."""
    if document.rejected:
        return document
    counts: Counter[str] = Counter()
    dropped: list[tuple[str, str]] = []
    lost = Counter(document.removed.lost)
    paragraphs = rules.clean_paragraphs(document.paragraphs, options, counts, dropped, lost)
    removed = Removed(dict(counts), _sample(dropped), dict(+lost), has_html(document.paragraphs))
    return dataclasses.replace(document, paragraphs=paragraphs, removed=removed)


def _sample(dropped: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return snippets of the first texts that each rule dropped from a document."""
    seen: Counter[str] = Counter()
    sample = []
    for rule, text in dropped:
        seen[rule] += 1
        if seen[rule] <= _MAX_DROPPED_LISTED:
            sample.append((rule, text[:SNIPPET_CHARACTERS]))
    return sample


def segment_document(document: Document, language: str, segmenter: str = "rules", abbreviations: str = "") -> Document:
    """Segment the paragraphs into sentences.

    Args:
        document: the document.
        language: ISO 639 code, for a document without a language of its own.
        segmenter: one of `beambert.pipelines.segmentation.segmenters.SEGMENTERS`.
        abbreviations: more abbreviations for the segmenter "rules", as of `split_sentences`.
    """
    if document.rejected:
        return document
    language = document.language or language
    sentences = [
        segmented
        for paragraph in document.paragraphs
        if (segmented := document_sentences([paragraph], language, document.segmented, segmenter, abbreviations))
    ]
    document = dataclasses.replace(document, language=language, sentences=sentences)
    return dataclasses.replace(document, id=identity(document.all_sentences()).hex())


def reject_document(document: Document, options: CleaningOptions) -> Document:
    """Apply the document rules to a segmented document.

    Raises:
        SourceError: the document is not segmented.
    """
    if document.rejected:
        return document
    _require_segmented(document)
    return dataclasses.replace(document, rejected=rejection_reason(document.all_sentences(), options) or "")


def reject_other_language(document: Document, language: str) -> Document:
    """Reject a document that is in another language than `language`."""
    text = document.paragraphs if document.sentences is None else document.all_sentences()
    if document.rejected or not is_other_language(text, language):
        return document
    return dataclasses.replace(document, rejected=rules.LANGUAGE)


def identify_language(document: Document) -> Document:
    """Set the language of a document that states none; documents of fewer than 200 characters stay without.

    Raises:
        SourceError: the document is segmented by the rules of a language.
    """
    if document.rejected:
        return document
    if document.language:
        if document.sentences is not None:
            raise SourceError(
                f"a document of {_source(document)} is already segmented by the rules of the language "
                f"{document.language}; identify the language before SegmentSentences"
            )
        return document
    language = main_language(document.all_sentences() or document.paragraphs)
    return dataclasses.replace(document, language=language) if language else document


def decontaminate(document: Document, evaluation_files: Sequence[str], action: str) -> Document:
    """Find text of evaluation files in a segmented document.

    Args:
        document: the document.
        evaluation_files: paths of the files.
        action: "drop" to reject a document that shares text with them, "report" to keep and list it.

    Raises:
        SourceError: the document is not segmented.
    """
    if document.rejected or not evaluation_files:
        return document
    _require_segmented(document)
    evaluation = load_evaluation(tuple(evaluation_files))
    ngram = find_shared_ngram(document.all_sentences(), evaluation.keys)
    if not ngram:
        return document
    removed = dataclasses.replace(document.removed, contamination=evaluation.describe(ngram))
    return dataclasses.replace(document, removed=removed, rejected=rules.CONTAMINATED if action == "drop" else "")


def truncate_document(document: Document, share: float) -> Document:
    """Truncate a random fraction of the sentences of a segmented document, as `truncate_sentences`; its ID stays.

    Raises:
        SourceError: the document is neither segmented nor rejected.
    """
    if not share:
        return document
    _require_segmented(document)
    if document.sentences is None:
        return document
    sentences = iter(truncate_sentences(document.all_sentences(), share, bytes.fromhex(document.id)))
    truncated = [[next(sentences) for _ in paragraph] for paragraph in document.sentences]
    return dataclasses.replace(document, sentences=truncated)


def _require_segmented(document: Document) -> None:
    if document.sentences is None and not document.rejected:
        raise SourceError(f"a document of {_source(document)} is not segmented; apply SegmentSentences first")


def _source(document: Document) -> str:
    return document.source or "the pipeline"


def record_of(document: Document, language: str = "") -> Record:
    """Return the record of a document for the shuffle to its partition.

    Args:
        document: a segmented or rejected document. A segmented one without an ID gets that of its sentences. Line
            breaks in a sentence are replaced by spaces.
        language: ISO 639 code, for a rejected document without a language of its own.

    Raises:
        SourceError: the document is neither segmented nor rejected.
    """
    _require_segmented(document)
    # Steps of a user may set no title, and sentences of several lines; a line of the text is a sentence.
    title = document.title or ""
    if document.sentences is None:
        # The title distributes documents without text over the partitions.
        document_id = identity([document.rejected, title, *document.paragraphs])
        text = "\n".join(document.paragraphs)
        paragraphs: tuple[int, ...] = ()
    else:
        sentences = [
            rules.fold_whitespace(sentence) if "\n" in sentence else sentence for sentence in document.all_sentences()
        ]
        document_id = bytes.fromhex(document.id) or identity(sentences)
        text = "\n".join(sentences)
        paragraphs = tuple(map(len, document.sentences))
    return Record(
        id=document_id,
        title=title,
        source=document.source,
        language=document.language or language,
        text=text,
        paragraphs=paragraphs,
        origin=document.origin,
        weight=document.weight,
        reason=document.rejected,
        work=_work(document),
        line=document.line,
        byte=document.byte,
        source_id=document.source_id,
    )


def document_of(record: Record) -> Document:
    """Return the document of a record, with its sentences as paragraphs."""
    paragraphs = [paragraph.split("\n") for paragraph in record.paragraph_texts()]
    work = json.loads(record.work) if record.work else {}
    return Document(
        paragraphs=[" ".join(paragraph) for paragraph in paragraphs] if paragraphs else record.text.split("\n"),
        title=record.title,
        source=record.source,
        rejected=record.reason,
        language=record.language,
        line=record.line,
        byte=record.byte,
        source_id=record.source_id,
        origin=record.origin,
        weight=record.weight,
        sentences=paragraphs if paragraphs or not record.reason else None,
        id=record.id.hex(),
        removed=Removed(
            work.get("counts", {}),
            [(rule, text) for rule, text in work.get("dropped", [])],
            work.get("lost", {}),
            HTML_TAGS in work.get("reported", []),
            work.get("contamination", {}),
        ),
    )


def _work(document: Document) -> str:
    """Return the cleaning results of a document as JSON, or "" without any, as `Record.work`."""
    removed = document.removed
    reported: list[str] = []
    if not document.rejected:
        reported += [rules.CONTAMINATED] if removed.contamination else []
        reported += [HTML_TAGS] if removed.html_tags else []
    if document.sentences is None or not (removed.counts or removed.lost or reported or removed.contamination):
        return ""
    content = {"counts": removed.counts, "dropped": removed.dropped, "reported": reported, "lost": removed.lost}
    if removed.contamination:
        content["contamination"] = removed.contamination
    return json.dumps(content, sort_keys=True)
