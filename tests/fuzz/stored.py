"""Cases with corrupt outputs that commands read back: manifests, corpora, shards, checkpoints, vocabularies."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.base import Base, damage, place, result_of
from tests.fuzz.case import Case
from tests.fuzz.mutations import any_splice, mutated_json, spliced
from tests.fuzz.process import Outcome

_EXAMPLES = "--max_seq_length 32 --dupe_factor 1"
_PRETRAIN = "--model tiny --num_train_steps 2 --train_batch_size 4 --output"
_MASK = "fill-mask {} the_[MASK]_rose"
_CONVERT = (
    *("convert --to native {} out", "convert --to huggingface {} out", "convert --to tf1 {} out"),
    "extend-vocab {} --replace data/vocab.txt --output out",
)
_FEATURES = "features --init_checkpoint {} --input_file inputs/lines.txt --layers=-1 --output_file out.jsonl"
# The commands that read each artifact. Those that take seconds are in `_SLOW` and are rarely drawn.
_COMMANDS = {
    "corpus": (f"pretraining-data --input {{}} {_EXAMPLES} --output out", "inspect {}"),
    "data": ("inspect {}", "inspect {} --stats", f"pretraining-data --input corpus {_EXAMPLES} --output {{}}"),
    "packed": ("inspect {}", "inspect {} --stats"),
    "columns": ("inspect {}", "inspect {} --stats"),
    "run": (_MASK, *_CONVERT, _FEATURES),
    "native": (_MASK, *_CONVERT),
    "hugging_face": (_MASK, *_CONVERT, _FEATURES),
    "tf1": (_MASK, *_CONVERT),
    "finetuned": ("predict {} a_|||_b --output_file out.tsv", "convert --to huggingface {} out"),
    "squad": ("predict {} what_rose_|||_the_river_rose --output_file out.tsv", "convert --to huggingface {} out"),
    "ner": ("predict {} the_river_rose --output_file out.tsv",),
}
_SLOW = {
    "data": (f"pretrain --data {{}} {_PRETRAIN} out",),
    "packed": (f"pretrain --data {{}} {_PRETRAIN} out",),
    "run": (f"pretrain --data data {_PRETRAIN} {{}}",),
    "finetuned": (
        "finetune rte --data_dir inputs/RTE --init_checkpoint {} --max_seq_length 32 --do_eval --output out",
    ),
}
_SLOW_SHARE = 0.04
_NEEDS = {
    "features": ("inputs",),
    "extend-vocab": ("data",),
    "finetune": ("inputs",),
    "pretrain": ("data",),
    "pretraining-data": ("corpus",),
}


# Rows of the embedding table of the models, which is also the size of their vocabularies.
_ROWS = 80
_SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
_VOCABULARIES = {
    "special tokens alone": _SPECIAL.encode(),
    "no special tokens": b"a\nb\nc\n",
    "a token twice": f"{_SPECIAL}a\na\n".encode(),
    "empty lines": f"{_SPECIAL}\n\na\n".encode(),
    "a token with spaces": f"{_SPECIAL}a b\n".encode(),
    "a token of 1 MB": f"{_SPECIAL}{'a' * 1_000_000}\n".encode(),
    "old Mac lines": _SPECIAL.replace("\n", "\r").encode(),
    "UTF-16": f"{_SPECIAL}a\n".encode("utf-16"),
    "JSON": b'{"a": 1}',
}


@dataclasses.dataclass(frozen=True)
class _Target:
    """A file of an artifact."""

    artifact: str
    name: str


def manifest(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a JSON file that has a wrong value or is corrupt."""
    target = _target(random, base, list(_COMMANDS), lambda path: path.suffix == ".json")
    content = (base.artifact(target.artifact) / target.name).read_bytes()
    if random.random() < 0.85:
        mutation = mutated_json(random, content.decode("utf-8"))
        name, new = mutation.name, mutation.text.encode("utf-8", "surrogatepass")
        # Files of other programs may lack fields that have defaults.
        missing = name.endswith("is missing") and (target.artifact in ("hugging_face", "tf1") or ", " in name)
        # `dataset.json` repeats the options of the corpus for its report; training does not read them.
        recorded = target.name == "dataset.json" and "'options', 'corpus', " in name
        valid = mutation.valid or missing or recorded
    else:
        name, splice = any_splice(random, content)
        new = spliced(content, splice)
        valid = _is_json(new)
    return _case(random, base, folder, target, name, new, judged=not valid)


def corpus_shard(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt shard of a corpus."""
    target = _target(random, base, ["corpus"], lambda path: path.suffix == ".parquet")
    return _damaged(random, base, folder, target)


def shard(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt shard of pretraining examples."""
    target = _target(random, base, ["data", "packed", "columns"], lambda path: path.parent.name == "shards")
    return _damaged(random, base, folder, target)


def checkpoint(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt file of weights."""
    artifacts = ["run", "native", "hugging_face", "tf1", "finetuned", "squad", "ner"]
    target = _target(random, base, artifacts, lambda path: ".ckpt" in path.name or path.suffix == ".safetensors")
    return _damaged(random, base, folder, target)


def vocabulary(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt vocabulary."""
    target = _target(random, base, list(_COMMANDS), lambda path: path.name == "vocab.txt")
    if random.random() < 0.2:
        name = random.choice(list(_VOCABULARIES))
        new = _VOCABULARIES[name]
        return _case(random, base, folder, target, name, new, _is_detectable(target, b"", new))
    return _damaged(random, base, folder, target)


def _target(random: Random, base: Base, artifacts: list[str], wanted: Callable[[Path], bool]) -> _Target:
    artifact = random.choice(artifacts)
    folder = base.artifact(artifact)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and wanted(path)]
    if not files:
        return _target(random, base, artifacts, wanted)
    return _Target(artifact, str(random.choice(files).relative_to(folder)))


def _damaged(random: Random, base: Base, folder: Path, target: _Target) -> Case:
    content = (base.artifact(target.artifact) / target.name).read_bytes()
    if random.random() < 0.05:
        return _case(random, base, folder, target, "missing", None, judged=True)
    name, splice = any_splice(random, content)
    new = spliced(content, splice)
    return _case(random, base, folder, target, name, new, _is_detectable(target, content, new))


def _is_detectable(target: _Target, old: bytes, new: bytes) -> bool:
    """Return whether a reader can detect that a file was changed."""
    if target.name.endswith(".safetensors"):
        # The format has no checksum, so that a change of the weights cannot be detected.
        header = 8 + int.from_bytes(old[:8], "little")
        return len(old) != len(new) or old[:header] != new[:header]
    if target.name == "vocab.txt" and target.artifact not in ("corpus", "data", "packed", "columns"):
        # A model may have more rows than its vocabulary has tokens: sizes are rounded up.
        return new.count(b"\n") > max(old.count(b"\n"), _ROWS)
    return True


def _case(
    random: Random,
    base: Base,
    folder: Path,
    target: _Target,
    name: str,
    content: bytes | None,
    judged: bool,
) -> Case:
    slow = _SLOW.get(target.artifact, ())
    template = random.choice(slow if slow and random.random() < _SLOW_SHARE else _COMMANDS[target.artifact])

    def prepare(folder: Path) -> list[str]:
        command = template.split()[0]
        # The command writes into the artifact.
        copied = template.endswith("{}")
        place(base.artifact(target.artifact), folder / target.artifact, copied)
        for needed in _NEEDS.get(command, ()):
            if needed != target.artifact:
                place(base.artifact(needed), folder / needed)
        return [_text(word) for word in template.format(target.artifact).split()]

    written = target.artifact if template.endswith("{}") and " --output " in template else "out*"
    argv = prepare(folder)
    # This result is computed before the corruption and shared by many cases, because some of these commands are slow.
    expected = base.expected(template.format(target.artifact), prepare, written)
    path = folder / target.artifact / target.name
    if content is None:
        path.unlink()
    else:
        damage(path, content)

    size = (base.artifact(target.artifact) / target.name).stat().st_size
    # A complete build checks only the sizes of its files, because reading all of them again could take hours.
    unseen = written != "out*" and content is not None and len(content) == size

    def wrong(outcome: Outcome) -> str | None:
        if not judged or unseen:
            return None
        result = result_of(outcome, written)
        different = sorted(key for key in expected.keys() | result.keys() if expected.get(key) != result.get(key))
        return f"differs from the clean run in {', '.join(different)}" if different else None

    return Case(f"{target.artifact}/{target.name}: {name}", argv, wrong)


def _text(word: str) -> str:
    """Return a word of a command, with spaces for the underscores of texts."""
    return word.replace("_", " ") if word.count("_") > 1 and not word.startswith("--") else word


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
