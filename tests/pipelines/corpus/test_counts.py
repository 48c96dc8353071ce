"""Test the counts of a corpus by domain and the samples of rejected texts."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from beambert.common.word_rules import WordRules
from beambert.pipelines.corpus import counts
from beambert.pipelines.corpus.blocks import DeduplicationResult, Duplicates
from beambert.pipelines.documents import Document

DOMAINS = st.sampled_from(["a.org", "b.org", "c.org", "d.org", ""])
# Of each document: the domain, and whether it is rejected.
PARTITIONS = st.lists(st.lists(st.tuples(DOMAINS, st.booleans()), max_size=12), max_size=4)


def document(domain: str, is_rejected: bool) -> Document:
    metadata = {"url": f"https://www.{domain}/page"} if domain else {}
    return Document(["Ein Satz."], id="0" * 32, rejected="spam" if is_rejected else "", metadata=metadata)


def counts_of(partitions, samples=(), min_quality=0.0) -> dict:
    parts = []
    for number, pairs in enumerate(partitions):
        documents = [document(*pair) for pair in pairs]
        kept = [each for each in documents if not each.rejected]
        rejected = [each for each in documents if each.rejected]
        result = DeduplicationResult(kept, rejected, Duplicates(), {})
        parts.append({**counts.count_documents(result), "samples": dict(samples[number : number + 1])})
    return counts.add_counts(parts, [], WordRules(), min_quality)


@given(PARTITIONS, st.integers(1, 3), st.integers(1, 3))
def test_domains_beyond_the_limit_are_summed(partitions, most_of_partition, most):
    limits = counts._MAX_PARTITION_DOMAINS, counts._MAX_DOMAINS
    counts._MAX_PARTITION_DOMAINS, counts._MAX_DOMAINS = most_of_partition, most
    try:
        domains = counts_of(partitions)["domains"]
    finally:
        counts._MAX_PARTITION_DOMAINS, counts._MAX_DOMAINS = limits
    assert len(domains.keys() - {""}) <= most
    pages = [pair for pairs in partitions for pair in pairs if pair[0]]
    total = Counter()
    for size in domains.values():
        total.update(size)
    assert total["documents"] == sum(not is_rejected for _, is_rejected in pages)
    assert total["rejected"] == sum(is_rejected for _, is_rejected in pages)
    assert total["bytes"] == 9 * total["documents"]


@given(PARTITIONS)
def test_domains_within_the_limit_are_exact(partitions):
    pages = Counter(pair for pairs in partitions for pair in pairs if pair[0])
    assert {
        (name, unit == "rejected"): size[unit]
        for name, size in counts_of(partitions)["domains"].items()
        for unit in ("documents", "rejected")
        if unit in size
    } == pages


def test_the_samples_of_a_rule_do_not_depend_on_the_order_of_partitions():
    samples = [("spam", [{"id": f"{number}", "title": "", "place": "p", "text": "t"}]) for number in range(5)]
    empty = [[]] * 5
    expected = {"spam": [sample for _, (sample,) in samples[:3]]}
    assert counts_of(empty, samples)["samples"] == counts_of(empty, samples[::-1])["samples"] == expected


def test_the_samples_of_a_quality_are_the_nearest_to_the_threshold():
    samples = [
        ("low_quality", [{"id": f"{number}", "title": "", "place": "p", "text": "t", "quality": quality}])
        for number, quality in enumerate(("0.1000", "0.3900", "0.2000", "0.3000"))
    ]
    nearest = counts_of([[]] * 4, samples, 0.4)["samples"]["low_quality"]
    assert [sample["quality"] for sample in nearest] == ["0.3900", "0.3000", "0.2000"]
