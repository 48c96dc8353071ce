"""Cases with corrupt files of fine-tuning tasks."""

from pathlib import Path
from random import Random

from tests.fuzz.base import Base, damage, place
from tests.fuzz.case import Case
from tests.fuzz.mutations import any_splice, mutated_json, spliced

# Task, its folder and the file that evaluation reads, by artifact.
_TASKS = {
    "finetuned": ("rte", "inputs/RTE", "dev.tsv"),
    "squad": ("squad", "inputs/squad", "dev-v1.1.json"),
    "ner": ("ner", "inputs/ner", "dev.txt"),
}
_CELLS = (
    b"\t",
    b"\t\t",
    b"\n",
    b"\n\n",
    b'"',
    b"\0",
    b"\r",
    b"nan",
    b"O",
    b"I-LOC",
    b"B-",
    b"-",
    b"entailment",
    b"\xff",
)


def task_file(random: Random, base: Base, folder: Path) -> Case:
    """Return a case with a corrupt file of a task, which a command reads to evaluate a model."""
    artifact = random.choice(list(_TASKS))
    task, data, name = _TASKS[artifact]
    place(base.artifact("inputs"), folder / "inputs")
    place(base.artifact(artifact), folder / artifact)
    path = folder / data / name
    content = path.read_bytes()
    kind = random.random()
    if path.suffix == ".json" and kind < 0.7:
        mutation = mutated_json(random, content.decode("utf-8"))
        description, new = mutation.name, mutation.text.encode("utf-8", "surrogatepass")
    elif kind < 0.5:
        at = random.randrange(len(content))
        cell = random.choice(_CELLS)
        description, new = f"{cell!r} at {at}", content[:at] + cell + content[at + random.choice((0, 1, 5)) :]
    else:
        description, splice = any_splice(random, content)
        new = spliced(content, splice)
    damage(path, new)
    argv = ["finetune", task, "--data_dir", data, "--init_checkpoint", artifact, "--max_seq_length", "32", "--do_eval"]
    return Case(f"{data}/{name}: {description}", [*argv, "--output", "out"], lambda outcome: None)
