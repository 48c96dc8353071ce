"""Test that the reference pages list every field of the manifests and the files beside them, and no other field."""

import dataclasses
import importlib
import itertools
import json
import re
from typing import Any, is_typeddict

import numpy as np
import pytest

from beambert import cli
from beambert.common.command_line.options import options_of
from beambert.pipelines.cleaning.quality_model import BUCKETS, QualityModel, ngram_buckets
from beambert.pipelines.instances.options import PretrainingDataOptions
from beambert.pipelines.io import manifest_schemas
from tests.conftest import ROOT

PAGES = [ROOT / "docs" / "reference" / f"{name}.md" for name in ("corpus-format", "dataset-format", "recorded-options")]
# The fields of `ExampleCounts` that must be positive.
INTERNAL = {"TrainingCounts"}
# Schemas that are described by a sentence that names their fields.
IN_SENTENCES = {"SplitCounts", "ClassCounts", "LanguageSize", "ValidationCoverages", "RecordedDatasetOptions"}


def fields_of(name: str) -> set[str]:
    """Return the fields of a dataclass, a TypedDict or an Arrow schema."""
    module, _, attribute = name.rpartition(".")
    schema = getattr(importlib.import_module(module), attribute)
    if dataclasses.is_dataclass(schema):
        return {field.name for field in dataclasses.fields(schema)}
    return set(schema.__annotations__ if is_typeddict(schema) else schema.names)


def expected_fields(source: str) -> set[str]:
    """Return the fields of a comment `<!-- fields: SCHEMA [more fields] [- SCHEMA of fields listed elsewhere] -->`."""
    listed, _, elsewhere = source.partition(" - ")
    schema, *more = listed.split()
    return (fields_of(schema) | set(more)) - (fields_of(elsewhere) if elsewhere else set())


def documented_tables() -> dict[str, set[str]]:
    """Return the first column of each table under a comment `<!-- fields: ... -->`, by the text of the comment."""
    tables = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for source, table in re.findall(r"<!-- fields: (.+) -->\n\n((?:\|.*\n)+)", text):
            assert source not in tables, f"{page.name}: {source}"
            tables[source] = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
            assert len(tables[source]) == table.count("\n") - 2, f"{page.name}: {source}"
    return tables


TABLES = documented_tables()


@pytest.mark.parametrize("source", [source for source in TABLES if "." in source])
def test_a_table_lists_the_fields_of_its_schema(source):
    assert TABLES[source] == expected_fields(source)


def test_every_schema_is_documented():
    schemas = {name for name, value in vars(manifest_schemas).items() if is_typeddict(value)} - INTERNAL
    documented = {word.rpartition(".")[2] for source in TABLES for word in source.partition(" - ")[0].split()}
    assert schemas - IN_SENTENCES <= documented
    assert {"Corpus", "CorpusShard", "SCHEMA", "Dataset", "Shard", "PretrainingDataOptions"} <= documented


def test_schemas_described_in_sentences():
    text = (ROOT / "docs" / "reference" / "corpus-format.md").read_text(encoding="utf-8")
    size = fields_of("beambert.pipelines.io.manifest_schemas.TextSize")
    assert fields_of("beambert.pipelines.io.manifest_schemas.LanguageSize") == size - {"rejected", "bytes_lost"}
    options = next(fields for source, fields in TABLES.items() if "PretrainingDataOptions" in source)
    assert fields_of("beambert.pipelines.io.manifest_schemas.RecordedDatasetOptions") <= options
    for name in ("SplitCounts", "ClassCounts", "ValidationCoverages"):
        for field in fields_of(f"beambert.pipelines.io.manifest_schemas.{name}"):
            assert f"`{field}`" in text


def test_every_feature_is_documented():
    features: set[str] = set()
    choices = {option.name: option.keywords().get("choices") for option in options_of(PretrainingDataOptions)}
    for masking, objective, pack, file_format in itertools.product(
        choices["masking"], choices["objective"], (False, True), choices["format"]
    ):
        options = PretrainingDataOptions(masking=masking, objective=objective, pack=pack, format=file_format)
        features |= set(options.names_of_features())
    assert TABLES["features"] == features


def test_every_field_of_rejected_lines_is_documented(tmp_path):
    """Run a job that drops a document for each reason with fields of its own."""
    words = list(map("".join, itertools.islice(itertools.product("bcdfgklm", "aeiou", "bcdfgklm"), 200)))
    texts = {
        "one": " ".join(words) + ".",
        "copy": " ".join(words) + ".",
        "similar": " ".join([*words[:195], "another", "end"]) + ".",
        "evaluated": "Thirteen words of this document are in the evaluation file that the job compares with it.",
        "private": "Write to joe@example.org about the cat.",
        "bad": "Spam.",
    }
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in texts.items()]
    (tmp_path / "input.jsonl").write_text("\n".join(lines))
    (tmp_path / "evaluation.txt").write_text(texts["evaluated"])
    argv: list[Any] = ["corpus", "--input", tmp_path / "input.jsonl", "--output", tmp_path / "corpus"]
    argv += ["--id_field", "id", "--drop_near_duplicates", "--decontaminate", tmp_path / "evaluation.txt"]
    argv += ["--pii", "drop", "--vocab_size", "100", "--validation_fraction", "0", "--num_partitions", "1"]
    weights = np.zeros(BUCKETS)
    weights[ngram_buckets("spam")] = -8.0
    classes = {"good": 20, "bad": 20}
    quality = {"documents": classes, "validation": classes, "accuracy": 1.0, "calibration": [], "thresholds": []}
    (tmp_path / "model").write_bytes(QualityModel(weights, 4.0, quality).to_bytes())
    argv += ["--quality_model", tmp_path / "model", "--min_quality", "0.5"]
    assert cli.main(list(map(str, argv))) == 0
    fields: set[str] = set()
    reasons = set()
    for path in (tmp_path / "corpus" / "rejected").glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            fields |= set(json.loads(line))
            reasons.add(json.loads(line)["reason"])
    assert reasons == {"duplicate", "near_duplicate", "contaminated", "pii_email", "low_quality"}
    # Only a file that is divided has offsets, and only some formats have metadata.
    assert TABLES["rejected"] == fields | {"byte", "metadata"}
