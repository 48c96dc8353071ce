"""Compare CPU seconds and memory with other projects on the same text and as much of the same work as they do.

    make bench-peers PEERS=PYTHON
    python benchmarks/peers.py ../shared/data PYTHON

PYTHON is an interpreter with datatrove[io,processing], spacy, wikiextractor 3.1.0, mwparserfromhell, datasets and
transformers; a project that it lacks is left out. Every program gets one process. Start and import count, except that
the seconds per MB are the slope between two sizes of the input. docs/benchmarks/peers.md says what each leaves out.
"""

import bz2
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
}


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
        print(f"    {function}: {errors.strip().splitlines()[-1] if errors.strip() else process.returncode}")
        return None
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu, peak)


def main(data: Path, python: str) -> None:
    from benchmarks.corpus import articles, run_command
    from benchmarks.wikipedia_dump import write_dump

    vocab_file = (data / "tokenizer/bert-base-uncased-vocab.txt").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # A quarter of the articles: some programs take ten seconds per MB.
        texts = articles(data)[::4]
        inputs: dict[str, list[tuple[Path, float]]] = {"dump to text": [], "clean and filter": [], "tokenize": []}
        for number, share in enumerate((4, 1)):
            dump = folder / f"{number}.xml.bz2"
            write_dump(data / "wiki-dump", dump, 40_000_000 // share)
            inputs["dump to text"].append((dump, len(bz2.decompress(dump.read_bytes())) / 1e6))
            lines = folder / f"{number}.jsonl"
            with lines.open("w", encoding="utf-8") as file:
                for title, text in texts[::share]:
                    file.write(json.dumps({"title": title, "text": text}) + "\n")
            size = sum(len((text or "").encode("utf-8")) for _, text in texts[::share]) / 1e6
            inputs["clean and filter"].append((lines, size))
            inputs["tokenize"].append((lines, size))
            run_command("corpus", "--input", lines, "--output", lines.with_suffix(""), "--vocab_file", vocab_file)
        for work, functions in WORKS.items():
            print(f"\n{work}, {inputs[work][0][1]:.0f} and {inputs[work][1][1]:.0f} MB", flush=True)
            for function in functions:
                is_own = function.__name__.endswith("beambert")
                costs = [
                    measure(
                        sys.executable if is_own else python,
                        *(function.__name__, source, folder / f"{function.__name__}-{size:.0f}", vocab_file),
                    )
                    for source, size in inputs[work]
                ]
                small, large = costs
                if small and large:
                    slope = (large.cpu - small.cpu) / (inputs[work][1][1] - inputs[work][0][1])
                    print(
                        f"  {function.__name__:<28} {large.cpu:7.1f} CPU s  {slope:.4f} CPU s/MB  "
                        f"{1 / slope:7.1f} MB/CPU s  {large.memory / 1e9:.2f} GB",
                        flush=True,
                    )


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        globals()[sys.argv[2]](*map(Path, sys.argv[3:]))
    else:
        main(Path(sys.argv[1]), sys.argv[2])
