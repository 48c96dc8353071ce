"""BERT in Keras 3: configuration, encoder, heads and complete models.

`bert_model.checkpoints` reads and writes the weights. Names are imported on first use, so that `bert_model.config` does
not need Keras.
"""

from typing import TYPE_CHECKING

from beambert_common.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from bert_model.config import BertConfig, ConfigError
    from bert_model.encoder import BertEncoder, EncoderOutput
    from bert_model.finetuning_models import BertForTask
    from bert_model.pretraining import BertForPretraining
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "BertConfig": "bert_model.config",
            "ConfigError": "bert_model.config",
            "BertEncoder": "bert_model.encoder",
            "EncoderOutput": "bert_model.encoder",
            "BertForTask": "bert_model.finetuning_models",
            "BertForPretraining": "bert_model.pretraining",
        },
    )

__all__ = [
    "BertConfig",
    "BertEncoder",
    "BertForPretraining",
    "BertForTask",
    "ConfigError",
    "EncoderOutput",
]
