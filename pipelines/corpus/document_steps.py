"""The steps of a document before its partition: clean, segment, reject, identify the language, decontaminate.

Pure functions. A document that a step rejects passes the later ones unchanged.
"""

import dataclasses
import functools
import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from beambert.pipelines.cleaning import quality_model, rules
from beambert.pipelines.cleaning.decontamination import find_shared_ngram, load_evaluation
from beambert.pipelines.cleaning.language_identification import is_other_language, main_language
from beambert.pipelines.cleaning.personal_data import (
    MAX_CHARACTERS,
    PLACEHOLDERS,
    find_personal_data,
    mask_findings,
    mask_metadata,
    mask_personal_data,
    show,
)
from beambert.pipelines.cleaning.residual_markup import has_html
from beambert.pipelines.cleaning.rules import CleaningOptions, rejection_reason
from beambert.pipelines.cleaning.urls import BLOCKED_URL, UNLISTED_URL, URL, load_url_list
from beambert.pipelines.documents import Document, Removed, identity, require_segmented
from beambert.pipelines.errors import SourceError
from beambert.pipelines.segmentation.segmenters import paragraph_segmenter, truncate_sentences

SNIPPET_CHARACTERS = 200
# Dropped paragraphs listed per rule and document, so that the list does not outweigh the text in the shuffle.
_MAX_DROPPED_LISTED = 3


def clean_document(document: Document, options: CleaningOptions) -> Document:
    """Apply the paragraph rules, then those for personal data, which also concern the title.

    Raises:
        SourceError: the document is segmented.
    """
    if document.rejected:
        return document
    _require_unsegmented(document, "CleanDocuments")
    counts: Counter[str] = Counter()
    dropped: list[tuple[str, str]] = []
    lost = Counter(document.removed.lost)
    paragraphs = rules.clean_paragraphs(document.paragraphs, options, counts, dropped, lost)
    removed = Removed(dict(counts), _sample(dropped, options.hidden_rules), dict(+lost), has_html(document.paragraphs))
    metadata = mask_metadata(document.metadata, options.hidden_rules)
    document = dataclasses.replace(document, paragraphs=paragraphs, metadata=metadata, removed=removed)
    return process_personal_data(document, options) if options.personal_data_rules else document


def _sample(dropped: list[tuple[str, str]], hidden_rules: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return snippets of the first texts that each rule dropped from a document."""
    seen: Counter[str] = Counter()
    sample = []
    for rule, text in dropped:
        seen[rule] += 1
        if seen[rule] <= _MAX_DROPPED_LISTED:
            sample.append((rule, snippet(text, hidden_rules)))
    return sample


def snippet(text: str, hidden_rules: Sequence[str] = ()) -> str:
    """Return the first 200 characters of a text, without the personal data that rules find.

    Args:
        text: the text.
        hidden_rules: `CleaningOptions.hidden_rules`.
    """
    if not hidden_rules:
        return text[:SNIPPET_CHARACTERS]
    # Masked before it is truncated: no rule recognizes half of an address.
    return mask_personal_data(text[: SNIPPET_CHARACTERS + MAX_CHARACTERS], hidden_rules)[:SNIPPET_CHARACTERS]


def process_personal_data(document: Document, options: CleaningOptions) -> Document:
    """Report, mask or reject by personal data in paragraphs and title, as `options.pii` states.

    Masked paragraphs are counted, and listed with the placeholders. A document is reported by every rule that finds
    something, and rejected by the first one in the order of `PERSONAL_DATA_RULES`.
    """
    texts = [*document.paragraphs, document.title]
    found = [find_personal_data(text, options.personal_data_rules) for text in texts]
    if not any(found):
        return document
    removed = document.removed
    if options.pii == "mask":
        counts, lost = Counter(removed.counts), Counter(removed.lost)
        shown: list[tuple[str, str]] = []
        for text, findings in zip(document.paragraphs, found, strict=False):
            of_rule = Counter(finding.rule for finding in findings)
            counts.update(of_rule.keys())
            for finding in findings:
                lost[finding.rule] += max(0, finding.end - finding.start - len(PLACEHOLDERS[finding.rule]))
            shown += [(rule, show(text, findings, rule, hidden=True)) for rule in of_rule]
        *paragraphs, title = map(mask_findings, texts, found)
        listed = [*removed.dropped, *_sample(shown)]
        removed = dataclasses.replace(removed, counts=dict(counts), lost=dict(+lost), dropped=listed)
        return dataclasses.replace(document, paragraphs=paragraphs, title=title, removed=removed)
    examples: dict[str, str] = {}
    for text, findings in zip(texts, found, strict=True):
        for rule in {finding.rule for finding in findings} - examples.keys():
            examples[rule] = show(text, findings, rule, hidden=options.pii == "drop")
    first = next(rule for rule in options.personal_data_rules if rule in examples)
    removed = dataclasses.replace(removed, personal_data=dict(sorted(examples.items())))
    return dataclasses.replace(document, removed=removed, rejected=first if options.pii == "drop" else "")


@functools.cache
def load_function(name: str) -> Callable[..., Any]:
    """Return a function of a user by its name, package.module:function.

    Raises:
        SourceError: the name has another form, the module cannot be imported, or it has no such function.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise SourceError(f"invalid function {name}: must be package.module:function, such as my_rules:is_recipe")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise SourceError(
            f"the function {name} cannot be imported ({error}); install its package, also on the workers, or set "
            "PYTHONPATH"
        ) from error
    if not callable(function):
        raise SourceError(f"{name} is not a function; give one that takes a Document")
    return function


def _call(function: Callable[[Any], Any] | str, argument: Any, rule: str, document: Document) -> Any:
    """Return the result of a function of a user.

    Raises:
        SourceError: the function raises an exception, which is the cause.
    """
    function = load_function(function) if isinstance(function, str) else function
    try:
        return function(argument)
    except Exception as error:
        raise SourceError(
            f"the function of the rule {rule} failed on a document of {document.place} ({type(error).__name__}: "
            f"{error}); correct the function"
        ) from error


def clean_with(document: Document, function: Callable[[str], str] | str, rule: str) -> Document:
    """Apply a function to each paragraph, and count what it changes or drops under the name of a rule.

    Args:
        document: the document.
        function: returns the cleaned paragraph, or "" to drop it; or its name, as of `load_function`.
        rule: name of the rule.

    Raises:
        SourceError: the document is segmented, or the function does not return a string.
    """
    if document.rejected:
        return document
    _require_unsegmented(document, "CleanParagraphs")
    counts, lost = Counter(document.removed.counts), Counter(document.removed.lost)
    kept: list[str] = []
    dropped: list[tuple[str, str]] = []
    for paragraph in document.paragraphs:
        changed = _call(function, paragraph, rule, document)
        if not isinstance(changed, str):
            raise SourceError(f"the function of the rule {rule} returned {changed!r}; it must return a string")
        if changed != paragraph:
            counts[rule] += 1
            lost[rule] += max(0, rules.utf8_bytes(paragraph) - rules.utf8_bytes(changed))
        if changed:
            kept.append(changed)
        else:
            dropped.append((rule, paragraph))
    removed = dataclasses.replace(
        document.removed, counts=dict(counts), dropped=[*document.removed.dropped, *_sample(dropped)], lost=dict(+lost)
    )
    return dataclasses.replace(document, paragraphs=kept, removed=removed)


def segment_document(document: Document, language: str, segmenter: str = "rules", abbreviations: str = "") -> Document:
    """Segment the paragraphs into sentences, one a line, and set the ID; a segmented document stays as it is.

    Args:
        document: the document.
        language: ISO 639 code, for a document without a language of its own.
        segmenter: one of `beambert.pipelines.segmentation.segmenters.SEGMENTERS`.
        abbreviations: more abbreviations for the segmenter "rules", as of `split_sentences`.
    """
    if document.rejected or document.id:
        return document
    language = document.language or language
    segment = paragraph_segmenter(language, document.segmented, segmenter, abbreviations)
    paragraphs = ["\n".join(sentences) for sentences in map(segment, document.paragraphs) if sentences]
    return dataclasses.replace(
        document, language=language, paragraphs=paragraphs, id=identity(paragraphs).hex(), segmented=False
    )


def reject_by_url(document: Document, block: Sequence[str], allow: Sequence[str]) -> Document:
    """Reject a document by lists of URLs.

    Args:
        document: the document.
        block: files of `load_url_list` whose URLs are rejected.
        allow: files of `load_url_list`: documents with another URL, or without one, are rejected; [] for none.

    Raises:
        SourceError: a file cannot be read, or is invalid.
    """
    if document.rejected:
        return document
    url = document.metadata.get(URL, "")
    rule = ""
    if block and load_url_list(tuple(block), "--block_urls").matches(url):
        rule = BLOCKED_URL
    elif allow and not load_url_list(tuple(allow), "--allow_urls").matches(url):
        rule = UNLISTED_URL
    return dataclasses.replace(document, rejected=rule)


def reject_document(document: Document, options: CleaningOptions) -> Document:
    """Apply the document rules to a segmented document.

    Raises:
        SourceError: the document is not segmented.
    """
    if document.rejected:
        return document
    require_segmented(document)
    reason = rejection_reason(document.sentences, options)
    return dataclasses.replace(document, rejected=reason) if reason else document


def reject_if(document: Document, function: Callable[[Document], bool | str] | str, rule: str) -> Document:
    """Reject a document by a function.

    Args:
        document: the document.
        function: returns False or "" to keep a document, True to reject it, or the name of the rule that rejects it;
            or its name, as of `load_function`.
        rule: name of the rule, if the function returns True.

    Raises:
        SourceError: the function returns something else.
    """
    if document.rejected:
        return document
    result = _call(function, document, rule, document)
    if not isinstance(result, bool | str):
        raise SourceError(f"the function of the rule {rule} returned {result!r}; it must return True, False or a name")
    return dataclasses.replace(document, rejected=rule if result is True else result or "")


def reject_other_language(document: Document, language: str) -> Document:
    """Reject a document that is in another language than `language`."""
    if document.rejected or not is_other_language(_sentences_or_paragraphs(document), language):
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
        if document.id:
            raise SourceError(
                f"a document of {document.place} is already segmented by the rules of the language "
                f"{document.language}; identify the language before SegmentSentences"
            )
        return document
    language = main_language(_sentences_or_paragraphs(document))
    return dataclasses.replace(document, language=language) if language else document


def _sentences_or_paragraphs(document: Document) -> list[str]:
    return document.sentences if document.id else document.paragraphs


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
    require_segmented(document)
    evaluation = load_evaluation(tuple(evaluation_files))
    ngram = find_shared_ngram(document.sentences, evaluation.keys)
    if not ngram:
        return document
    removed = dataclasses.replace(document.removed, contamination=evaluation.describe(ngram))
    return dataclasses.replace(document, removed=removed, rejected=rules.CONTAMINATED if action == "drop" else "")


def reject_low_quality(document: Document, model: str, min_quality: float, sha256: str = "") -> Document:
    """Record the probability that a segmented document is good, and reject the document if it is below `min_quality`.

    Args:
        document: the document.
        model: path of the quality model.
        min_quality: minimum probability.
        sha256: hex SHA-256 of the model when the job started, or "".

    Raises:
        SourceError: the document is not segmented, or the model cannot be read or has changed.
    """
    if document.rejected:
        return document
    require_segmented(document)
    probability = quality_model.load(model, sha256).probability(document.text)
    removed = dataclasses.replace(document.removed, quality=probability)
    rejected = rules.LOW_QUALITY if probability < min_quality else ""
    return dataclasses.replace(document, removed=removed, rejected=rejected)


def truncate_document(document: Document, share: float) -> Document:
    """Truncate a random fraction of the sentences of a segmented document, as `truncate_sentences`; its ID stays.

    Raises:
        SourceError: the document is neither segmented nor rejected.
    """
    if not share:
        return document
    require_segmented(document)
    if not document.id:
        return document
    sentences = iter(truncate_sentences(document.sentences, share, bytes.fromhex(document.id)))
    paragraphs = ["\n".join(next(sentences) for _ in range(count)) for count in document.sentence_counts]
    return dataclasses.replace(document, paragraphs=paragraphs)


def _require_unsegmented(document: Document, transform: str) -> None:
    if document.id:
        raise SourceError(f"a document of {document.place} is already segmented; apply {transform} first")
