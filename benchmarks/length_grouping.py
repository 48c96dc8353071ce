"""Measure rows per second of fine-tuning with and without grouping by length.

    PYTHONPATH=. python benchmarks/length_grouping.py uncased_L-12_H-768_A-12.zip cola=../shared/data/glue/CoLA
    PYTHONPATH=. python benchmarks/length_grouping.py MODEL stsb=STS-B ner=CoNLL-2003 --precision bfloat16 float32

Each run trains on a fraction of an epoch of the complete training set, in turn without and with grouping.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def measured(flags: list[str], output: Path) -> dict[str, float]:
    """Fine-tune and return rows, tokens and unpadded tokens per second over all steps but the compiled first."""
    command = [sys.executable, "-m", "beambert", "finetune", *flags, "--output", str(output), "--do_train"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    # A line has the rate since the line before, and all lines have the same number of steps.
    names = ("sequences_per_second", "tokens_per_second", "unpadded_tokens_per_second")
    return {name: statistics.harmonic_mean([line[name] for line in lines if name in line]) for name in names}


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pretrained model")
    parser.add_argument("tasks", nargs="+", metavar="TASK=DIR", help="tasks and the directories of their files")
    parser.add_argument("--precision", nargs="+", default=["bfloat16"], choices=("float32", "bfloat16"))
    parser.add_argument("--epochs", default="0.2", help="fraction of an epoch (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each kind (default: %(default)s)")
    options = parser.parse_args()
    print("| task | precision | grouped | rows/s | tokens/s | of them text | ratio |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for task, directory in (item.split("=", 1) for item in options.tasks):
            for precision in options.precision:
                flags = [task, "--data_dir", directory, "--init_checkpoint", options.model, "--precision", precision]
                flags += ["--num_train_epochs", options.epochs, "--cache_dir", str(folder / "features")]
                runs: dict[str, list[dict[str, float]]] = {"false": [], "true": []}
                for repetition in range(options.repetitions):
                    for grouped, found in runs.items():
                        output = folder / f"{task}-{precision}-{grouped}-{repetition}"
                        found.append(measured([*flags, "--group_by_length", grouped], output))
                medians = {
                    grouped: [statistics.median(run[name] for run in found) for name in found[0]]
                    for grouped, found in runs.items()
                }
                for grouped, (rows, tokens, text) in medians.items():
                    ratio = f"{rows / medians['false'][0]:.2f}" if grouped == "true" else ""
                    print(f"| {task} | {precision} | {grouped} | {rows:.1f} | {tokens:.0f} | {text:.0f} | {ratio} |")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
