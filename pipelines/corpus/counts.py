"""Count a corpus for `corpus.json`: documents, text and removed text by input, language and rule."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from beambert.common.word_rules import WordRules
from beambert.pipelines.cleaning.ngrams import count_words
from beambert.pipelines.cleaning.residual_markup import HTML_TAGS
from beambert.pipelines.cleaning.rules import CONTAMINATED, utf8_bytes
from beambert.pipelines.cleaning.urls import URL, domain_of
from beambert.pipelines.corpus.blocks import DeduplicationResult
from beambert.pipelines.corpus.corpus_manifest import CorpusShard
from beambert.pipelines.dataset import SPLITS
from beambert.pipelines.documents import LICENSE, Document
from beambert.tokenizer.lost_marks import MarkCounts
from beambert.tokenizer.normalization import split_words

# Fraction of removed text above which most of an input counts as lost.
_MOSTLY = 0.5
_MAX_FILES = 100
# Domains with the most documents: of a partition, so that its counts stay small, and of a corpus.
_MAX_PARTITION_DOMAINS, _MAX_DOMAINS = 1000, 100
# Rejected texts of each rule in report.html.
MAX_SAMPLES = 3


@dataclasses.dataclass
class Loss:
    """Kept and removed text of an input.

    Attributes:
        kept: bytes (UTF-8) of text kept.
        lost: bytes of text removed, by rule.
    """

    kept: int = 0
    lost: Counter[str] = dataclasses.field(default_factory=Counter)

    def add(self, document: Document) -> None:
        """Add a cleaned document, which may be rejected."""
        size = utf8_bytes(document.text)
        if document.rejected:
            self.lost[document.rejected] += size
        else:
            self.kept += size
        self.lost.update(document.removed.lost)

    def merge(self, other: "Loss") -> None:
        """Add the counts of another part of the same input."""
        self.kept += other.kept
        self.lost.update(other.lost)

    @property
    def lost_text(self) -> Counter[str]:
        """Return the bytes of text removed, by rule, without licenses."""
        return Counter({rule: size for rule, size in self.lost.items() if rule != LICENSE})

    @property
    def share(self) -> float:
        """Return the fraction of the text that is removed; the license of a file is not text."""
        lost = self.lost_text.total()
        return lost / (self.kept + lost) if lost else 0.0

    @property
    def is_mostly_lost(self) -> bool:
        """Return whether more than half of the text is removed."""
        return self.share > _MOSTLY


def reported_rules(document: Document) -> list[str]:
    """Return the rules that report a document and keep it."""
    if document.rejected:
        return []
    reported = [CONTAMINATED] if document.removed.contamination else []
    reported += document.removed.personal_data
    return [*reported, HTML_TAGS] if document.removed.html_tags else reported


def count_documents(deduplicated: DeduplicationResult) -> dict[str, Any]:
    """Return the counts of a shard, for `add_counts`: by input, language, rule, domain and quality."""
    inputs: dict[str, Counter[str]] = {}
    rejected: dict[str, Counter[str]] = {}
    languages: dict[str, Counter[str]] = {}
    cleaned: Counter[str] = Counter()
    reported: Counter[str] = Counter()
    losses: dict[str, Loss] = {}
    domains: dict[str, Counter[str]] = {}
    qualities: dict[str, Counter[str]] = {}
    for document in deduplicated.rejected:
        rejected.setdefault(document.origin, Counter())[document.rejected] += 1
    for document in deduplicated.kept:
        text = document.text
        data = text.encode("utf-8")
        size = {
            "documents": 1,
            "sentences": text.count("\n") + 1,
            "words": count_words(data),
            "characters": len(text),
            "bytes": len(data),
        }
        inputs.setdefault(document.origin, Counter()).update(size)
        languages.setdefault(document.language, Counter()).update(size)
        repeated = deduplicated.repeated.get(document.id, ())
        for rule, paragraph in repeated:
            cleaned[rule] += 1
            losses.setdefault(document.origin, Loss()).lost[rule] += utf8_bytes(paragraph)
    for document in [*deduplicated.rejected, *deduplicated.kept]:
        losses.setdefault(document.origin, Loss()).add(document)
        cleaned.update(document.removed.counts)
        reported.update(reported_rules(document))
        if domain := domain_of(document.metadata.get(URL, "")):
            domains.setdefault(domain, Counter()).update(_part_size(document))
        if document.removed.quality is not None:
            tenth = f"{min(int(document.removed.quality * 10), 9) / 10}"
            qualities.setdefault(tenth, Counter()).update(_part_size(document))
    return {
        "inputs": inputs,
        "rejected": rejected,
        "languages": languages,
        "cleaned": +cleaned,
        "reported": reported,
        "lost": {origin: +loss.lost for origin, loss in losses.items()},
        "domains": _largest_domains(domains, _MAX_PARTITION_DOMAINS),
        "qualities": qualities,
    }


def _part_size(document: Document) -> dict[str, int]:
    """Return the counts of a document for its domain and its quality."""
    return {"rejected": 1} if document.rejected else {"documents": 1, "bytes": utf8_bytes(document.text)}


def _largest_domains(domains: Mapping[str, dict[str, int]], limit: int) -> dict[str, dict[str, int]]:
    """Return the counts of the domains with the most documents read, and the sum of the others under ""."""
    ordered = sorted(
        (name for name in domains if name),
        key=lambda name: (-domains[name].get("documents", 0) - domains[name].get("rejected", 0), name),
    )
    largest = {name: dict(domains[name]) for name in ordered[:limit]}
    others = sum_counts(domains[name] for name in [*ordered[limit:], *(name for name in domains if not name)])
    return {**largest, "": others} if others else largest


def add_counts(
    counts: list[dict[str, Any]], shards: list[CorpusShard], word_rules: WordRules, min_quality: float = 0.0
) -> dict[str, Any]:
    """Add up the counts of `count_documents` over all shards, for `corpus.json`.

    Samples with a quality are those the nearest to `min_quality`.
    """
    total: dict[str, Any] = {
        "documents": {split: sum(shard.documents for shard in shards if shard.split == split) for split in SPLITS},
        "sentences": {split: sum(shard.sentences for shard in shards if shard.split == split) for split in SPLITS},
        "documents_rejected": sum_counts(rules for shard in counts for rules in shard["rejected"].values()),
        "documents_reported": sum_counts(shard["reported"] for shard in counts),
        "paragraphs_cleaned": sum_counts(shard["cleaned"] for shard in counts),
    }
    # Shards of text that keeps its marks have no such counts.
    diacritics = [shard["diacritics"] for shard in counts if "diacritics" in shard]
    if diacritics:
        total["diacritics"] = add_marks(
            (MarkCounts(count["letters"], count["lost"], Counter(count["words"])) for count in diacritics), word_rules
        )
    for unit in ("words", "characters", "bytes"):
        total[unit] = sum(size[unit] for shard in counts for size in shard["languages"].values())
    for group in ("inputs", "languages", "domains", "qualities"):
        names = sorted({name for shard in counts for name in shard[group]})
        total[group] = {name: sum_counts(shard[group].get(name, {}) for shard in counts) for name in names}
    for name in sorted({name for shard in counts for name in shard["rejected"]}):
        rejected = sum_counts(shard["rejected"].get(name, {}) for shard in counts)
        total["inputs"].setdefault(name, {"documents": 0})["rejected"] = rejected
    for name in sorted({name for shard in counts for name in shard["lost"]}):
        lost = sum_counts(shard["lost"].get(name, {}) for shard in counts)
        if lost:
            total["inputs"].setdefault(name, {"documents": 0})["bytes_lost"] = lost
    total["domains"] = _largest_domains(total["domains"], _MAX_DOMAINS)
    total["samples"] = {
        rule: sorted(
            (sample for shard in counts for sample in shard["samples"].get(rule, ())),
            key=lambda sample: (abs(float(sample.get("quality", 0)) - min_quality), sorted(sample.items())),
        )[:MAX_SAMPLES]
        for rule in sorted({rule for shard in counts for rule in shard["samples"]})
    }
    return total


def add_marks(counts: Iterable[MarkCounts], word_rules: WordRules) -> dict[str, Any]:
    """Add up the letters that lose a mark, for `corpus.json`, with an example word before and after the rules."""
    total = MarkCounts()
    for count in counts:
        total.merge(count)
    stripped = " ".join(split_words(total.example, word_rules))
    return {"letters": total.letters, "lost": total.lost, "example": [total.example, stripped]}


def sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))


def losses_of_files(losses: Iterable[tuple[str, str, bool, Loss]]) -> list[dict[str, Any]]:
    """Return the files that lost more than half of their text in cleaning, by descending loss in bytes.

    Args:
        losses: (path, --input pattern, whether the split is the complete file, loss) of every file split.

    Returns:
        {"file", "input", "kept", "lost": {rule: bytes}} of at most 100 files.
    """
    files: dict[tuple[str, str], Loss] = {}
    for path, origin, is_complete, loss in losses:
        if not is_complete or loss.is_mostly_lost:
            files.setdefault((path, origin), Loss()).merge(loss)
    large_losses = sorted((-loss.lost_text.total(), file) for file, loss in files.items() if loss.is_mostly_lost)
    return [
        {"file": file[0], "input": file[1], "kept": files[file].kept, "lost": dict(sorted((+files[file].lost).items()))}
        for _, file in large_losses[:_MAX_FILES]
    ]
