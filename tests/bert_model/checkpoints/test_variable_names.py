from beambert.bert_model.config import BertConfig
from beambert.bert_model.heads import PRETRAINING
from beambert.bert_model.pretraining import BertForPretraining
from beambert.bert_model.variable_names import variables_by_tf1_name


def test_names_and_shapes_of_the_released_checkpoint():
    names = {
        name.tf1: (name.hugging_face, name.shape)
        for name in PRETRAINING.variable_names(BertConfig.preset("base", 30522))
    }
    assert len(names) == 206
    expected = {
        "bert/embeddings/word_embeddings": ("bert.embeddings.word_embeddings.weight", (30522, 768)),
        "bert/embeddings/token_type_embeddings": ("bert.embeddings.token_type_embeddings.weight", (2, 768)),
        "bert/embeddings/position_embeddings": ("bert.embeddings.position_embeddings.weight", (512, 768)),
        "bert/embeddings/LayerNorm/gamma": ("bert.embeddings.LayerNorm.weight", (768,)),
        "bert/encoder/layer_0/attention/self/query/kernel": (
            "bert.encoder.layer.0.attention.self.query.weight",
            (768, 768),
        ),
        "bert/encoder/layer_10/attention/output/LayerNorm/beta": (
            "bert.encoder.layer.10.attention.output.LayerNorm.bias",
            (768,),
        ),
        "bert/encoder/layer_11/intermediate/dense/kernel": (
            "bert.encoder.layer.11.intermediate.dense.weight",
            (768, 3072),
        ),
        "bert/encoder/layer_11/output/dense/kernel": ("bert.encoder.layer.11.output.dense.weight", (3072, 768)),
        "bert/pooler/dense/kernel": ("bert.pooler.dense.weight", (768, 768)),
        "cls/predictions/transform/dense/kernel": ("cls.predictions.transform.dense.weight", (768, 768)),
        "cls/predictions/transform/LayerNorm/beta": ("cls.predictions.transform.LayerNorm.bias", (768,)),
        "cls/predictions/output_bias": ("cls.predictions.bias", (30522,)),
        "cls/seq_relationship/output_weights": ("cls.seq_relationship.weight", (2, 768)),
        "cls/seq_relationship/output_bias": ("cls.seq_relationship.bias", (2,)),
    }
    assert {name: names[name] for name in expected} == expected


def test_the_table_names_every_variable_of_a_model_once():
    config = BertConfig(
        vocab_size=11,
        hidden_size=6,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=10,
        max_position_embeddings=7,
        type_vocab_size=3,
    )
    model = BertForPretraining(config)
    variables = variables_by_tf1_name(model)
    assert [tuple(variable.shape) for variable in variables.values()] == [
        name.shape for name in PRETRAINING.variable_names(config)
    ]
    assert {id(variable) for variable in variables.values()} == {id(variable) for variable in model.variables}
    assert len(variables) == len(model.variables)
