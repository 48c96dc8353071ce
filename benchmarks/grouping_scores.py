"""Compare the scores of fine-tuning with batches in random order and with batches grouped by length.

    PYTHONPATH=. python benchmarks/grouping_scores.py MODEL ../shared/data/glue --seeds 5

Four data sets: MRPC; 6,000 rows of SST-2; 6,000 rows of SST-2 chosen so that 90% of the short sentences are positive
and 90% of the long ones negative; and pairs of sentences of MRPC with their share of common words from 0 to 5, a
regression. Grouped batches of the third have mostly one label, which is the worst case of grouping. Each run has three
epochs; all other settings are defaults. Scores are accuracy or Pearson correlation in percent.
"""

import argparse
import csv
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROWS = 6_000
# Share of rows with the label that their length suggests.
CORRELATION = 0.9


def write_correlated(sst2: Path, directory: Path) -> None:
    """Write rows of SST-2 whose label follows their length, and the complete development set."""
    with (sst2 / "train.tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    random.Random(1).shuffle(rows)
    median = statistics.median(len(sentence.split()) for sentence, _ in rows)
    wanted = {(short, label): ROWS / 2 * (1 - CORRELATION) for short in (True, False) for label in "01"}
    wanted[True, "1"] = wanted[False, "0"] = ROWS / 2 * CORRELATION
    chosen = []
    for sentence, label in rows:
        kind = (len(sentence.split()) < median, label)
        if wanted[kind] > 0:
            wanted[kind] -= 1
            chosen.append((sentence, label))
    directory.mkdir()
    with (directory / "train.tsv").open("w", encoding="utf-8") as file:
        file.writelines(f"{sentence}\t{label}\n" for sentence, label in [("sentence", "label"), *chosen])
    (directory / "dev.tsv").write_bytes((sst2 / "dev.tsv").read_bytes())


def write_similarity(mrpc: Path, directory: Path) -> None:
    """Write pairs as STS-B has them: a third of MRPC's, a third with another second sentence, a third half changed."""
    directory.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        with (mrpc / name).open(encoding="utf-8-sig", newline="") as file:
            pairs = [row[3:5] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]
        draw = random.Random(1)
        lines = ["sentence1\tsentence2\tscore\n"]
        for number, (first, second) in enumerate(pairs):
            other = draw.choice(pairs)[1]
            words, other_words = first.split(), other.split()
            half = " ".join([*words[: len(words) // 2], *other_words[len(other_words) // 2 :]])
            compared = (second, other, half)[number % 3]
            sets = [set(re.findall(r"\w+", text.lower())) for text in (first, compared)]
            score = 5 * len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)
            lines.append(f"{first}\t{compared}\t{score:.2f}\n")
        (directory / name).write_text("".join(lines), encoding="utf-8")


def score(flags: list[str], output: Path) -> float:
    """Fine-tune and return the accuracy or Pearson correlation on the development set in percent."""
    command = [sys.executable, "-m", "beambert", "finetune", *flags, "--output", str(output), "--do_train", "--do_eval"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    match = re.search(r"^eval_(?:accuracy|pearson) = (\S+)", (output / "eval_results.txt").read_text(), re.MULTILINE)
    assert match is not None
    return 100 * float(match.group(1))


def main() -> None:
    """Print a Markdown table with a row for each data set and seed, and the mean differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="pretrained model")
    parser.add_argument("glue", type=Path, help="directory with MRPC and SST-2")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each kind (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_correlated(options.glue / "SST-2", folder / "correlated")
        write_similarity(options.glue / "MRPC", folder / "similarity")
        data_sets = {
            "SST-2": ["sst2", "--data_dir", str(options.glue / "SST-2"), "--max_train_samples", str(ROWS)],
            "SST-2, label by length": ["sst2", "--data_dir", str(folder / "correlated")],
            "MRPC": ["mrpc", "--data_dir", str(options.glue / "MRPC")],
            "similarity": ["stsb", "--data_dir", str(folder / "similarity")],
        }
        print("| data | seed | random order | grouped | difference |\n|---|---|---|---|---|", flush=True)
        for name, flags in data_sets.items():
            flags = [*flags, "--init_checkpoint", options.model, "--cache_dir", str(folder / "features")]
            differences = []
            for seed in range(1, options.seeds + 1):
                scores = []
                for grouped in ("false", "true"):
                    output = folder / f"{name}-{seed}-{grouped}"
                    scores.append(score([*flags, "--seed", str(seed), "--group_by_length", grouped], output))
                differences.append(scores[1] - scores[0])
                print(f"| {name} | {seed} | {scores[0]:.1f} | {scores[1]:.1f} | {differences[-1]:+.1f} |", flush=True)
            mean, error = statistics.mean(differences), statistics.stdev(differences) / len(differences) ** 0.5
            print(f"| {name} | mean | | | {mean:+.2f} ± {error:.2f} |", flush=True)


if __name__ == "__main__":
    main()
