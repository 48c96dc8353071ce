"""The heads of a model. A head is one object: its variables, forward pass, loss, predictions and files.

No other code names a head. Importing this package imports neither Keras nor TensorFlow.
"""

from beambert.bert_model.heads.classification import Classification
from beambert.bert_model.heads.feature_based import FeatureBased
from beambert.bert_model.heads.head import FinetuningHead, Head
from beambert.bert_model.heads.multi_label import MultiLabel
from beambert.bert_model.heads.multiple_choice import MultipleChoice
from beambert.bert_model.heads.pretraining import Pretraining
from beambert.bert_model.heads.regression import Regression
from beambert.bert_model.heads.span import Span
from beambert.bert_model.heads.token_classification import TokenClassification

# Where several heads match a file, the last one is that of the file.
HEADS: dict[str, FinetuningHead] = {
    head.name: head
    for head in (
        Classification(),
        Regression(),
        MultiLabel(),
        Span(),
        TokenClassification(),
        FeatureBased(),
        MultipleChoice(),
    )
}
PRETRAINING = Pretraining()
ALL_HEADS: dict[str, Head] = {PRETRAINING.name: PRETRAINING, **HEADS}
