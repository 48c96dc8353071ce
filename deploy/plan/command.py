"""`beambert plan`: estimate the size, time and cost of a build and a pretraining run."""

from beambert.bert_model.config import ConfigError, resolve
from beambert.deploy.plan.data import plan_data, plan_dataflow
from beambert.deploy.plan.estimate_lines import (
    Line,
    as_json,
    as_text,
    compilation_lines,
    count,
    data_lines,
    dataflow_lines,
    text_lines,
    training_lines,
)
from beambert.deploy.plan.options import (
    DEFAULT_ACCELERATOR,
    DEFAULT_UTILIZATION,
    PlanOptions,
    add_arguments,
    configure,
)
from beambert.deploy.plan.plan_warnings import compilation_warnings, warnings_of
from beambert.deploy.plan.text_estimate import BYTES_A_WORD, Text, estimate_text
from beambert.deploy.plan.tpu_compiler.compiler_process import compile_step, require_compiler
from beambert.deploy.plan.tpu_compiler.step_estimate import estimate_steps
from beambert.deploy.plan.training import find_accelerator, plan_training
from beambert.pipelines.errors import SubmitError
from beambert.pipelines.vocabulary.vocabulary_options import DEFAULT_VOCAB_SIZE
from beambert.tokenizer.vocabulary import Vocabulary
from beambert.trainers.optimization.schedule import check_batch_sizes, plan_stages

DESCRIPTION = """Estimate size, time and cost of a build and a pretraining run.

Give one of --corpus_bytes, --words and --input. The estimate covers documents, tokens, examples, shards, Dataflow
workers, accelerator hours and their cost, each with its arithmetic. Nothing is built or submitted.

With --compile, the TPU compiler adds memory, largest batch and time of the training step on a TPU slice."""

EXAMPLE = """beambert plan --corpus_bytes 20e9
beambert plan --words 3.3e9 --model base --schedule 128x0.9,512x0.1 --accelerator v3-8
beambert plan --input 'texts/*.txt' --max_seq_length 128 --json
beambert plan --words 3.3e9 --train_batch_size 4096 --precision bfloat16 --compile v6e-16"""

COMMON_FLAGS = (
    "--corpus_bytes",
    "--input",
    "--max_seq_length",
    "--model",
    "--num_train_steps",
    "--train_batch_size",
    "--accelerator",
    "--mfu",
)

__all__ = ["COMMON_FLAGS", "DESCRIPTION", "EXAMPLE", "add_arguments", "configure", "make_plan", "run"]


def run(config: PlanOptions) -> int:
    """Run the command.

    Raises:
        SubmitError, ConfigError, DatasetError, TrainingError, SourceError, VocabularyError: invalid flags.
    """
    plan, warnings = make_plan(config)
    print(as_json(plan, warnings) if config.json else as_text(plan, warnings))
    return 0


def make_plan(config: PlanOptions) -> tuple[dict[str, list[Line]], list[str]]:
    """Return the lines of the plan by section, and its warnings. Raise as `run` does."""
    pretraining = config.training
    # Both are optional in PretrainOptions; the flags of this command have defaults.
    assert pretraining.model is not None
    assert pretraining.num_train_steps is not None
    target = config.compiler_target
    name = config.accelerator or (target.name if target else DEFAULT_ACCELERATOR)
    accelerator = find_accelerator(name, config.num_accelerators, pretraining.peak_tflops)
    vocab_size = _vocab_size(config.vocab_size, config.vocab_file)
    model = resolve(pretraining.model, vocab_size)
    options = config.examples_by_length()
    lengths = [examples.max_seq_length for examples in options]
    if max(lengths) > model.max_position_embeddings:
        raise ConfigError(
            f"sequence length {max(lengths)} exceeds the {model.max_position_embeddings} position embeddings of "
            f"--model {pretraining.model}: use a shorter length, or a bert_config.json with more of them"
        )
    stages = plan_stages(pretraining.num_train_steps, lengths, pretraining.schedule, pretraining.train_batch_size, None)
    if target:
        require_compiler()
        devices = target.devices * config.num_accelerators
        check_batch_sizes(stages, devices, pretraining.gradient_accumulation_steps)
    text = _text(config, vocab_size)
    data = plan_data(
        text,
        options,
        vocab_size,
        num_partitions=config.num_partitions,
        validation_fraction=config.validation_fraction,
        learns_vocabulary=not config.vocab_file,
    )
    dataflow = plan_dataflow(data, config.workers, config.cpu_factor)
    predictions = [examples.max_predictions_per_seq for examples in options]
    rows = [length.rows for length in data.lengths]
    if not all(rows):
        raise SubmitError("the text is too short for one training example: give more text")
    training = plan_training(model, stages, lengths, predictions, rows, accelerator, config.mfu or DEFAULT_UTILIZATION)
    batch_sizes = [
        max(stage.batch_size for stage in stages if stage.data == data_index) for data_index in range(len(lengths))
    ]
    plan = {
        "Input": text_lines(text),
        "Data": data_lines(text, data, config.examples.dupe_factor, config.validation_fraction),
        "Dataflow": dataflow_lines(data, dataflow, config.cpu_factor),
        "Training": training_lines(
            text,
            data,
            training,
            accelerator,
            pretraining.model,
            config.price_per_hour,
            utilization_is_given=bool(config.mfu),
        ),
    }
    warnings = warnings_of(text, options, model, data, dataflow, training, batch_sizes, accelerator)
    if target:
        slices = config.num_accelerators
        estimates = estimate_steps(
            target,
            slices,
            model,
            pretraining,
            options,
            batch_sizes,
            with_time=not config.no_step_time,
            compile_step=compile_step,
        )
        plan["TPU compiler"] = compilation_lines(estimates, target, slices, model)
        warnings += compilation_warnings(estimates, target, slices)
    return plan, warnings


def _vocab_size(vocab_size: int | None, vocab_file: str | None) -> int:
    return vocab_size or DEFAULT_VOCAB_SIZE if vocab_file is None else len(Vocabulary.load(vocab_file))


def _text(config: PlanOptions, vocab_size: int) -> Text:
    if config.input:
        from beambert.deploy.plan.text_sample import sample_text

        return sample_text(
            list(config.input), config.input_format, config.text_field, config.language, vocab_size, config.vocab_file
        )
    if config.words:
        text_bytes = config.words * BYTES_A_WORD
        return estimate_text(text_bytes, config.document_bytes, vocab_size, f"from --words {count(config.words)}")
    assert config.corpus_bytes is not None
    return estimate_text(config.corpus_bytes, config.document_bytes, vocab_size, "from --corpus_bytes")
