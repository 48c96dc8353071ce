"""Remove near-duplicates with datatrove or text-dedup, for `near_duplicates.py`, in an environment without beambert.

    python benchmarks/near_duplicates_peers.py datatrove|text-dedup TEXTS.jsonl FOLDER

Both get 5-grams, 14 bands of 8 rows and one process. Prints [numbers of the documents that stay, CPU seconds].
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path


def run_datatrove(path: Path, folder: Path) -> list[int]:
    """Return the documents that stay after the four stages of datatrove's MinHash."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter

    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    reader = JsonlReader(str(path.parent), glob_pattern=path.name)
    signatures, buckets, removed, kept = (f"{folder}/{name}" for name in ("signatures", "buckets", "removed", "kept"))
    stages = (
        (1, [reader, MinhashDedupSignature(output_folder=signatures, config=config)]),
        (14, [MinhashDedupBuckets(input_folder=signatures, output_folder=buckets, config=config)]),
        (1, [MinhashDedupCluster(input_folder=buckets, output_folder=removed, config=config)]),
        (1, [reader, MinhashDedupFilter(input_folder=removed), JsonlWriter(kept, compression=None)]),
    )
    for number, (tasks, pipeline) in enumerate(stages):
        LocalPipelineExecutor(pipeline=pipeline, tasks=tasks, workers=1, logging_dir=f"{folder}/log{number}").run()
    return [int(json.loads(line)["id"]) for file in Path(kept).iterdir() for line in file.open(encoding="utf-8")]


def run_text_dedup(path: Path, folder: Path) -> list[int]:
    """Return the documents that stay after text-dedup's MinHash, with its faster hash function."""
    import datasets

    command = [sys.executable, "-m", "text_dedup.minhash", "--path", "json", "--data_files", str(path)]
    command += ["--split", "train", "--cache_dir", f"{folder}/cache", "--output", f"{folder}/kept", "--column", "text"]
    command += ["--ngram", "5", "--num_perm", "112", "--b", "14", "--r", "8", "--hash_func", "xxh3", "--num_proc", "1"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{folder}/cache"}
    subprocess.run(command, check=True, stdout=sys.stderr, env=environment)
    return [int(number) for number in datasets.load_from_disk(f"{folder}/kept")["id"]]


if __name__ == "__main__":
    tool, texts, work = sys.argv[1:]
    result = {"datatrove": run_datatrove, "text-dedup": run_text_dedup}[tool](Path(texts), Path(work))
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps([result, sum(each.ru_utime + each.ru_stime for each in usage)]))
