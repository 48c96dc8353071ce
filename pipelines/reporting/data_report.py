"""Render `report.html` of a dataset, to check the training data before training.

The file is self-contained, has no scripts, and is deterministic: it has no dates or machine names.
"""

import json
from typing import Any

from beambert.pipelines.reporting import corpus_sections, example_sections
from beambert.pipelines.reporting.page import page, tiles, warning_list
from beambert.pipelines.reporting.report_content import ROWS_SHOWN, Report
from beambert.pipelines.reporting.samples import samples_section
from beambert.pipelines.reporting.tables import share, short, table

FILE_NAME = "report.html"


def render(report: Report) -> str:
    """Return the page as HTML."""
    sections = (
        ("warnings", "Warnings", lambda report: warning_list(report.manifest.counts["warnings"])),
        ("sources", "Sources", corpus_sections.sources),
        ("text", "Text", corpus_sections.text),
        ("vocabulary", "Vocabulary", corpus_sections.vocabulary),
        ("examples", "Examples", example_sections.examples),
        ("masks", "Masking", example_sections.masks),
        ("duplicates", "Duplicates and overlap", example_sections.duplicates),
        ("samples", "Samples", lambda report: samples_section(report.samples, report.options)),
        ("made", "Provenance", _provenance),
    )
    content = [(name, title, write(report)) for name, title, write in sections]
    return page("Pretraining data", _head(report), content)


def _head(report: Report) -> str:
    """Return the HTML below the title: main options and key figures."""
    train, validation, options = report.statistics["train"], report.statistics["validation"], report.options
    numbers = [
        ("training documents", f"{train.documents:,}"),
        ("training tokens", short(train.tokens)),
        ("training examples", short(train.rows)),
        ("validation examples", short(validation.rows)),
        ("[UNK]", share(train.unknown_tokens, train.tokens)),
        (example_sections.padding_name(options), share(train.positions - train.instance_tokens, train.positions)),
    ]
    if options.objective != "mlm":
        numbers.append((example_sections.label_name(options), share(train.instances_labeled_1, train.instances)))
    if options.masking != "dynamic":
        numbers.append(("masked tokens", share(train.masked_tokens, train.instance_tokens)))
    return (
        f'<p class="soft">Objective: {options.objective}. Masking: {options.masking.replace("_", " ")}. '
        f"Maximum sequence length: {options.max_seq_length}. Copies of the data: {options.dupe_factor}. "
        f"Vocabulary: {len(report.tokens):,} tokens.</p>"
        f"{tiles(numbers)}"
    )


def _provenance(report: Report) -> str:
    """Return the HTML of the section on options, shards and package versions."""
    manifest = report.manifest
    options = [(name, _value(value)) for name, value in sorted(manifest.options.items()) if name != "corpus"]
    corpus = [(name, _value(value)) for name, value in sorted(report.corpus_options.items())]
    files = [
        (shard.name, f"{shard.examples:,}", f"{shard.bytes:,}", shard.sha256[:12])
        for shard in manifest.shards[:ROWS_SHOWN]
    ]
    more = len(manifest.shards) - len(files)
    more_files = f'<p class="soft">{more:,} more shards are listed in dataset.json.</p>' if more else ""
    return "".join(
        f"<details><summary>{title}</summary>{content}</details>"
        for title, content in (
            ("Example options", table(("option", "value"), options)),
            ("Corpus options", table(("option", "value"), corpus)),
            ("Shards", table(("shard", "examples", "bytes", "SHA-256"), files) + more_files),
            ("Package versions", table(("package", "version"), sorted(manifest.versions.items()))),
        )
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
