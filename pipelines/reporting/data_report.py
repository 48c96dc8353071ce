"""`report.html` of a dataset: one file that describes the training data before training is paid for.

It needs nothing from outside, runs no script, and says the same for the same dataset: no date, no machine.
"""

import json
from typing import Any

from pipelines.reporting import corpus_sections, example_sections
from pipelines.reporting.page import page, tiles, warning_list
from pipelines.reporting.report_content import ROWS_SHOWN, Report
from pipelines.reporting.samples import samples_section
from pipelines.reporting.tables import share, short, table

FILE_NAME = "report.html"


def render(report: Report) -> str:
    """Return the page."""
    sections = (
        ("warnings", "Before you train", lambda report: warning_list(report.manifest.counts["warnings"])),
        ("sources", "Sources, and what was left out", corpus_sections.sources),
        ("text", "Text", corpus_sections.text),
        ("vocabulary", "Vocabulary", corpus_sections.vocabulary),
        ("examples", "Examples", example_sections.examples),
        ("masks", "Masks", example_sections.masks),
        ("duplicates", "Duplicates and overlap", example_sections.duplicates),
        ("samples", "Samples", lambda report: samples_section(report.samples, report.options)),
        ("made", "How it was made", _provenance),
    )
    content = [(name, title, write(report)) for name, title, write in sections]
    return page("Pretraining data", _head(report), content)


def _head(report: Report) -> str:
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
        numbers.append(("masked", share(train.masked_tokens, train.instance_tokens)))
    copies = f"{options.dupe_factor} copy{'s' if options.dupe_factor > 1 else ''}"
    return (
        f'<p class="soft">Objective {options.objective}, masking {options.masking.replace("_", " ")}, '
        f"{options.max_seq_length} positions, {copies}, {len(report.tokens):,} tokens in the vocabulary.</p>"
        f"{tiles(numbers)}"
    )


def _provenance(report: Report) -> str:
    manifest = report.manifest
    options = [(name, _value(value)) for name, value in sorted(manifest.options.items()) if name != "corpus"]
    corpus = [(name, _value(value)) for name, value in sorted(report.corpus_options.items())]
    files = [
        (shard.name, f"{shard.examples:,}", f"{shard.bytes:,}", shard.sha256[:12])
        for shard in manifest.shards[:ROWS_SHOWN]
    ]
    more = len(manifest.shards) - len(files)
    more_files = f'<p class="soft">and {more:,} more in dataset.json</p>' if more else ""
    return "".join(
        f"<details><summary>{title}</summary>{content}</details>"
        for title, content in (
            ("Options of the examples", table(("option", "value"), options)),
            ("Options of the corpus", table(("option", "value"), corpus)),
            ("Files", table(("file", "examples", "bytes", "SHA-256"), files) + more_files),
            ("Versions", table(("package", "version"), sorted(manifest.versions.items()))),
        )
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
