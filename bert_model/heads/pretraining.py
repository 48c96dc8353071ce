"""The pretraining heads: masked language model and next-sentence prediction (paper, section 3.1)."""

from collections.abc import Sequence

from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads.head import Head
from beambert.bert_model.variable_names import MASKED_LM, NEXT_SENTENCE, VariableName, read_table

_MASKED_LM = """
masked_lm.        cls/predictions/           cls.predictions.

transform.kernel  transform/dense/kernel     transform.dense.weight      H,H
transform.bias    transform/dense/bias       transform.dense.bias        H
norm.gamma        transform/LayerNorm/gamma  transform.LayerNorm.weight  H
norm.beta         transform/LayerNorm/beta   transform.LayerNorm.bias    H
output_bias       output_bias                bias                        V
"""
_NEXT_SENTENCE = """
next_sentence.  cls/seq_relationship/  cls.seq_relationship.

output_weights  output_weights         weight  2,H
output_bias     output_bias            bias    2
"""


class Pretraining(Head):
    """The heads of a `BertForPretraining`, which a checkpoint may lack."""

    name = "pretraining"
    fixed_labels = 2
    # A BertModel is a pretraining model without heads.
    hugging_face_classes = ("BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction")
    pipeline_tag = "fill-mask"

    def own_variables(self, config: BertConfig, num_labels: int) -> list[VariableName]:
        """Return the variables of both heads."""
        sizes = {"V": config.vocab_size, "H": config.hidden_size, "2": num_labels}
        return [*read_table(_MASKED_LM, sizes), *read_table(_NEXT_SENTENCE, sizes)]

    def hugging_face_class(self, tf1_names: Sequence[str]) -> str:
        """Return the class with the heads that are present."""
        masked_lm, next_sentence = (
            any(name.startswith(prefix) for name in tf1_names) for prefix in (MASKED_LM, NEXT_SENTENCE)
        )
        with_masked_lm = "BertForPreTraining" if next_sentence else "BertForMaskedLM"
        return with_masked_lm if masked_lm else "BertForNextSentencePrediction" if next_sentence else "BertModel"
