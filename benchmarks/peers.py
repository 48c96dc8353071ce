"""Compare CPU seconds and memory with other projects on the same text and as much of the same work as they do.

    make bench-peers PEERS=PYTHON BERT=FOLDER
    BERT=FOLDER python benchmarks/peers.py ../shared/data PYTHON

PYTHON is an interpreter with datatrove[io,processing], spacy, wikiextractor 3.1.0, mwparserfromhell, datasets and
transformers, and FOLDER a clone of google-research/bert; a program that is missing is left out. Every program gets one
process. The seconds per MB are the slope between an input and a fourth of it, so that start and imports do not count;
each is the best of three runs. docs/benchmarks/peers.md says what each program leaves out.
"""

import bz2
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

REPEATS = 3
_PAGE = re.compile(r"<title>([^<]*)</title>\s*<ns>0</ns>.*?<text\b[^<>]*>([^<]*)</text>", re.DOTALL)


def read_with_beambert(source: Path, output: Path, _: Path) -> None:
    """Extract the articles of a dump and write them as JSON Lines."""
    from beambert.pipelines.formats.input_format import ReadOptions
    from beambert.pipelines.sources.readers import read_file

    with output.open("w", encoding="utf-8") as file:
        for document in read_file(str(source), ReadOptions()):
            if not document.rejected:
                file.write(json.dumps({"title": document.title, "text": "\n".join(document.paragraphs)}) + "\n")


def read_with_wikiextractor(source: Path, output: Path, _: Path) -> None:
    """Extract the articles of a dump with WikiExtractor, without templates, as JSON Lines."""
    command = ("-m", "wikiextractor.WikiExtractor", "--json", "--no-templates", "--processes", "1", "--quiet")
    subprocess.run([sys.executable, *command, "--output", str(output), str(source)], check=True)


def read_with_mwparserfromhell(source: Path, output: Path, _: Path) -> None:
    """Strip the markup of the articles of a dump with mwparserfromhell, and write them as JSON Lines."""
    import html

    import mwparserfromhell

    with bz2.open(source, "rt", encoding="utf-8") as pages, output.open("w", encoding="utf-8") as file:
        for title, text in _PAGE.findall(pages.read()):
            if not text.lstrip().lower().startswith("#redirect"):
                plain = mwparserfromhell.parse(html.unescape(text)).strip_code()
                file.write(json.dumps({"title": title, "text": plain}) + "\n")


def clean_with_beambert(source: Path, output: Path, vocab_file: Path) -> None:
    """Clean, segment, filter and deduplicate documents, and write them as Parquet."""
    from beambert.cli import main

    main(["corpus", "--input", str(source), "--output", str(output), "--vocab_file", str(vocab_file)])


def clean_with_datatrove(source: Path, output: Path, _: Path) -> None:
    """Filter documents by the rules of Gopher and C4 with datatrove, and write them as JSON Lines."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers import JsonlWriter

    filters = [GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(filter_no_terminal_punct=False)]
    steps = [JsonlReader(str(source.parent), glob_pattern=source.name), *filters, JsonlWriter(str(output))]
    LocalPipelineExecutor(pipeline=steps, tasks=1, logging_dir=f"{output}-logs").run()


_OPTIONS = ["--dupe_factor", "5", "--max_seq_length", "128", "--max_predictions_per_seq", "20"]


def make_examples_with_beambert(source: Path, output: Path, _: Path) -> None:
    """Tokenize a corpus, sample pairs of sentences, mask five copies of them and write TFRecord."""
    from beambert.cli import main

    main(["pretraining-data", "--input", str(source), "--output", str(output), *_OPTIONS])


def make_examples_with_google_research_bert(source: Path, output: Path, vocab_file: Path) -> None:
    """Do the same with create_pretraining_data.py and TensorFlow 2."""
    import tensorflow

    sys.modules["tensorflow"] = tensorflow.compat.v1  # The script is written for version 1.
    sys.path.insert(0, os.environ["BERT"])
    import create_pretraining_data as script

    paths = ["--input_file", f"{source}.txt", "--output_file", str(output), "--vocab_file", str(vocab_file)]
    script.FLAGS(["", *paths, *_OPTIONS])
    script.main([])


def tokenize_with_beambert(source: Path, output: Path, _: Path) -> None:
    """Tokenize a corpus, sample pairs of sentences, and write them as TFRecord, to be masked by the trainer."""
    from beambert.cli import main

    flags = ["--masking", "dynamic", "--dupe_factor", "1"]
    main(["pretraining-data", "--input", str(source.with_suffix("")), "--output", str(output), *flags])


def tokenize_with_datasets(source: Path, output: Path, vocab_file: Path) -> None:
    """Tokenize the documents with `datasets.map` and a fast tokenizer, cut to 128 tokens, and write them as Arrow."""
    import datasets
    from transformers import BertTokenizerFast

    tokenizer = BertTokenizerFast(str(vocab_file))
    documents = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=f"{output}-cache")

    def encode(batch: dict) -> dict:
        return tokenizer(batch["text"], truncation=True, max_length=128, return_overflowing_tokens=True)

    documents.map(encode, batched=True, remove_columns=documents.column_names).save_to_disk(str(output))


WORKS: dict[str, tuple[Callable[[Path, Path, Path], None], ...]] = {
    "dump to text": (read_with_beambert, read_with_wikiextractor, read_with_mwparserfromhell),
    "clean and filter": (clean_with_beambert, clean_with_datatrove),
    "tokenize": (tokenize_with_beambert, tokenize_with_datasets),
    "training examples": (make_examples_with_beambert, make_examples_with_google_research_bert),
}


# Programs that take seconds per MB get a sixteenth of the input of the others.
SLOW = ("datatrove", "google_research_bert", "mwparserfromhell")


class Input(NamedTuple):
    """An input and its size in MB: of its XML, or of its text."""

    path: Path
    megabytes: float


class Cost(NamedTuple):
    """CPU seconds and peak bytes of memory of a program and its children."""

    cpu: float
    memory: int


def measure(python: str, function: str, source: Path, output: Path, vocab_file: Path) -> Cost | None:
    """Run a function of this file in another process; None if its package is missing."""
    from benchmarks.corpus import memory

    before, peak = os.times(), 0
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [python, __file__, "--run", function, str(source), str(output), str(vocab_file)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        errors = ""
        while process.poll() is None:
            peak = max(peak, memory(process.pid))
            time.sleep(0.2)
        errors = process.stderr.read() if process.stderr else ""
    if process.returncode:
        print(f"{function}: {errors.strip().splitlines()[-1] if errors.strip() else process.returncode}")
        return None
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu, peak)


def best(python: str, function: str, source: Path, output: Path, vocab_file: Path) -> Cost | None:
    """Return the smallest cost of several runs."""
    costs = []
    for _ in range(REPEATS):
        costs.append(measure(python, function, source, output, vocab_file))
        for path in output.parent.glob(f"{output.name}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if costs[-1] is None:
            return None
    return min(cost for cost in costs if cost)


def write_sentences(corpus: Path, path: Path) -> None:
    """Write the training split of a corpus as text: one sentence a line, and a blank line after each document."""
    import pyarrow.parquet

    with path.open("w", encoding="utf-8") as file:
        for shard in sorted(corpus.glob("corpus/train-*.parquet")):
            for sentences in pyarrow.parquet.read_table(shard, columns=["sentences"])["sentences"].to_pylist():
                file.write("\n".join(sentences) + "\n\n")


def main(data: Path, python: str) -> None:
    from benchmarks.corpus import articles, run_command
    from benchmarks.wikipedia_dump import write_dump

    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    texts = articles(data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        inputs: dict[str, list[Input]] = {work: [] for work in WORKS}
        for share in (64, 16, 4, 1):
            dump = folder / f"{share}.xml.bz2"
            write_dump(data / "wiki-dump", dump, 160_000_000 // share)
            inputs["dump to text"].append(Input(dump, len(bz2.decompress(dump.read_bytes())) / 1e6))
            lines = folder / f"{share}.jsonl"
            with lines.open("w", encoding="utf-8") as file:
                for title, text in texts[::share]:
                    file.write(json.dumps({"title": title, "text": text}) + "\n")
            size = sum(len((text or "").encode("utf-8")) for _, text in texts[::share]) / 1e6
            corpus = lines.with_suffix("")
            run_command("corpus", "--input", lines, "--output", corpus, "--vocab_file", vocab_file)
            write_sentences(corpus, Path(f"{corpus}.txt"))
            inputs["clean and filter"].append(Input(lines, size))
            inputs["tokenize"].append(Input(lines, size))
            inputs["training examples"].append(Input(corpus, size))
        print("| work | program | MB | CPU s per MB | relative | memory |\n|---|---|---|---|---|---|")
        for work, functions in WORKS.items():
            own = 0.0
            for function in functions:
                program = function.__name__.partition("_with_")[2]
                # The script of google-research/bert uses the TensorFlow of this environment.
                interpreter = sys.executable if program in ("beambert", "google_research_bert") else python
                smaller, larger = inputs[work][:2] if program in SLOW else inputs[work][2:]
                small, large = (
                    best(interpreter, function.__name__, source.path, folder / "output", vocab_file)
                    for source in (smaller, larger)
                )
                if not small or not large:
                    continue
                slope = (large.cpu - small.cpu) / (larger.megabytes - smaller.megabytes)
                own = own or slope
                print(
                    f"| {work} | {program} | {larger.megabytes:.0f} | {slope:.3f} | {slope / own:.1f} "
                    f"| {large.memory / 1e9:.2f} GB |",
                    flush=True,
                )


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("name an interpreter with the other projects: make bench-peers PEERS=PYTHON BERT=FOLDER")
    if sys.argv[1] == "--run":
        globals()[sys.argv[2]](*map(Path, sys.argv[3:]))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
