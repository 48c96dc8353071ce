"""BERT in Keras 3: configuration, encoder, heads and complete models.

`beambert.bert_model.checkpoints` reads and writes the weights. Names are imported on first use, so that
`beambert.bert_model.config` does not need Keras.
"""

from typing import TYPE_CHECKING

from beambert.common.imports import lazy_exports

if TYPE_CHECKING:
    from beambert.bert_model.config import BertConfig, ConfigError
    from beambert.bert_model.encoder import BertEncoder, Packing
    from beambert.bert_model.finetuning_models import BertForTask
    from beambert.bert_model.pretraining import BertForPretraining
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "BertConfig": "beambert.bert_model.config",
            "ConfigError": "beambert.bert_model.config",
            "BertEncoder": "beambert.bert_model.encoder",
            "Packing": "beambert.bert_model.encoder",
            "BertForTask": "beambert.bert_model.finetuning_models",
            "BertForPretraining": "beambert.bert_model.pretraining",
        },
    )

__all__ = [
    "BertConfig",
    "BertEncoder",
    "BertForPretraining",
    "BertForTask",
    "ConfigError",
    "Packing",
]
