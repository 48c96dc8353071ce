"""The options of a training command as `run.json` and `runs.json` record them.

Every option of `beambert pretrain` and `finetune` is here with its type as JSON. An older file lacks some of them; an
option that is not listed is allowed.
"""

from typing import TypedDict

from beambert_json import Count, NonNegative, Number, Positive


class RecordedOptions(TypedDict, total=False):
    """Options by name; None for one that was not given and has no default."""

    adam_beta1: NonNegative
    adam_beta2: NonNegative
    adam_epsilon: NonNegative
    batch_ramp: str | None
    bert_config_file: str | None
    best_metric: str | None
    cache_dir: str | None
    class_weights: str | None
    clip: str
    clip_norm: NonNegative
    comment_prefix: str | None
    cpu_devices: Positive
    data: list[str]
    data_dir: str | None
    deterministic_ops: bool
    dev_share: NonNegative | None
    do_eval: bool
    do_lower_case: bool | None
    do_predict: bool
    do_train: bool
    doc_stride: Positive
    document_context: bool | None
    early_stopping: Positive | None
    eval_batch_size: Positive
    eval_steps: Count
    feature_based: bool | None
    file_tag_scheme: str | None
    gcp_project: str | None
    gradient_accumulation_steps: Positive
    init_checkpoint: str | None
    iterations_per_loop: Positive | None
    keep_checkpoint_every_n_hours: NonNegative | None
    keep_checkpoint_max: Positive
    label_column: str
    label_separator: str
    layerwise_lr_decay: NonNegative
    learning_rate: NonNegative | None
    left_to_right: bool
    lr_decay_power: NonNegative
    lr_multiplier: list[list[str | Number]]
    max_answer_length: Positive
    max_eval_samples: Positive | None
    max_eval_steps: Positive
    max_predict_samples: Positive | None
    max_query_length: Positive
    max_seq_length: Positive | None
    max_train_samples: Positive | None
    model: str | None
    n_best_size: Positive
    no_next_sentence: bool
    null_score_diff_threshold: Number | str
    num_train_epochs: NonNegative
    num_train_steps: Positive
    num_warmup_steps: Count | None
    on_corrupt: str
    on_not_finite: str
    optimizer: str
    output: str
    peak_tflops: NonNegative | None
    precision: str
    predict_file: str | None
    problem: str
    recipe: str | None
    recompute: str
    save_checkpoints_steps: Positive
    schedule: str | None
    seed: Count
    seeds: Positive
    strategy: str
    tag_column: int | None
    tag_scheme: str | None
    task: str | None
    test_without_tags: bool | None
    text_column: str | None
    text_pair_column: str | None
    tpu_name: str | None
    tpu_zone: str | None
    train_batch_size: Positive
    train_file: str | None
    verify: bool
    version_2_with_negative: bool
    vocab_file: str | None
    warmup_proportion: NonNegative
    weight_decay: NonNegative
    word_column: int | None
    xla: str
    xnli_language: str | None
    xnli_train_language: str | None
