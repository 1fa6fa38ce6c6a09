"""The models' configurations: transformers reads its own, and the parameters' counts are the published ones."""

import pytest
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from labkit.repository import MODELS
from labkit.theory.gpt import SIZES, VOCABULARY, gpt
from labkit.theory.shapes import bert, configuration


def test_bert_base_has_the_published_parameters():
    import torch

    shape = configuration("bert-base")
    with torch.device("meta"):
        model = BertForSequenceClassification(BertConfig(**shape))
    ours = bert(shape["hidden_size"], shape["num_hidden_layers"], shape["vocab_size"], shape["max_position_embeddings"])
    assert sum(weight.numel() for weight in model.parameters()) == ours.parameters == 109_483_778


@pytest.mark.parametrize(
    ("name", "size", "parameters"), [("gpt2", "GPT-2 small", 124_439_808), ("gpt2-large", "GPT-2 Large", 774_030_080)]
)
def test_gpt2_has_the_published_parameters(name, size, parameters):
    import torch

    with torch.device("meta"):
        model = GPT2LMHeadModel(GPT2Config(**configuration(name)))
    layers, hidden, _ = SIZES[size]
    assert (
        sum(weight.numel() for weight in model.parameters()) == gpt(layers, hidden, VOCABULARY).parameters == parameters
    )


def test_an_unknown_configuration_lists_the_known():
    with pytest.raises(FileNotFoundError, match="bert-base"):
        configuration("bert-huge")


def test_every_configuration_is_in_the_list():
    readme = (MODELS / "README.md").read_text()
    for file in MODELS.glob("*.json"):
        assert file.stem in readme or f"{file.stem.partition('-')[0]}" in readme
