"""Options of a fine-tuning run from flags, as the command reads them."""

from beambert import cli
from beambert.trainers.finetuning.options import FinetuneOptions


def parse_options(task: str, *flags: object) -> FinetuneOptions:
    """Return the options of `beambert finetune TASK` with flags."""
    options: FinetuneOptions = cli.read_command("finetune", [task, "--output", "out", *map(str, flags)]).configure()
    return options
