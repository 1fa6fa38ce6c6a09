"""BERT for classification, whole or cut into stages."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from transformers import BertConfig
from transformers.models.bert.modeling_bert import BertEmbeddings, BertLayer, BertPooler

from labkit.theory.shapes import configuration

LABELS: int = configuration("bert-base")["num_labels"]
INITIALIZER_STD: float = configuration("bert-base")["initializer_range"]  # standard deviation of BERT's initial weights
EMBEDDING, HEAD = 1000, 1001  # numbers of the parts that are no layer, for their seeds
IMPLEMENTATIONS = {"fused": "sdpa", "plain": "eager"}  # of attention: torch's fused kernels, or product by product


def bert_config(plan: Any, dropout: float = 0.0, attention: str = "fused") -> BertConfig:
    """Return the model's configuration; only without dropout can a pipeline be compared with the whole model.

    `plan` has layers, hidden, heads, sequence and vocabulary.
    """
    shape = {
        "hidden_size": plan.hidden,
        "num_hidden_layers": plan.layers,
        "num_attention_heads": plan.heads,
        "intermediate_size": 4 * plan.hidden,
        "vocab_size": plan.vocabulary,
        "max_position_embeddings": max(512, plan.sequence),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        "attn_implementation": IMPLEMENTATIONS[attention],
    }
    return BertConfig(**configuration("bert-base") | shape)


def model_knobs(point: SimpleNamespace) -> dict[str, Any]:
    """Return the point's dropout and attention, as a model takes them; of a point that names neither, nothing."""
    return {name: getattr(point, name) for name in ("dropout", "attention") if hasattr(point, name)}


class Stage(nn.Module):
    """Some consecutive layers of BERT; tokens (batch, sequence) enter the first, logits (batch, 2) leave the last.

    Between stages goes the hidden state (batch, sequence, hidden). Under `precision` "autocast", weights and what
    goes between stages stay float32. `attention` is a name in IMPLEMENTATIONS.
    """

    def __init__(
        self,
        plan: Any,
        layers: range,
        seed: int,
        device: torch.device,
        precision: str = "float32",
        *,
        first: bool = False,
        last: bool = False,
        dropout: float = 0.0,
        attention: str = "fused",
    ):
        super().__init__()
        shape = bert_config(plan, dropout, attention)
        self.autocast = {"device_type": device.type, "dtype": torch.bfloat16, "enabled": precision == "autocast"}
        self.embedding = _part(BertEmbeddings, shape, (seed, EMBEDDING), device) if first else None
        self.numbers = layers
        self.layers = nn.ModuleList([_part(BertLayer, shape, (seed, layer), device) for layer in layers])
        self.head = _part(_head, shape, (seed, HEAD), device) if last else None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        with torch.autocast(**self.autocast):
            if self.embedding is not None:
                hidden = self.embedding(hidden)
            for layer in self.layers:
                out = layer(hidden)
                hidden = out if isinstance(out, torch.Tensor) else out[0]  # by transformers' version
            if self.head is not None:
                hidden = self.head(hidden)
        return hidden.float()

    def parts(self) -> dict[str | int, nn.Module]:
        """Return the parts by name: "embedding", the layers by their number in the whole model, "head"."""
        parts = {"embedding": self.embedding, **dict(zip(self.numbers, self.layers, strict=True)), "head": self.head}
        return {name: part for name, part in parts.items() if part is not None}


def _head(shape: BertConfig) -> nn.Module:
    return nn.Sequential(BertPooler(shape), nn.Linear(shape.hidden_size, LABELS))


def _part(
    kind: Callable[[BertConfig], nn.Module], shape: BertConfig, number: tuple[int, int], device: torch.device
) -> nn.Module:
    """Return one part with BERT's initial weights, which depend on seed and part, not on how the model is cut."""
    with torch.device(device):
        part = kind(shape)
    generator = torch.Generator(device).manual_seed(number[0] * 10_007 + number[1])
    for name, weight in part.named_parameters():
        if weight.dim() > 1:
            nn.init.normal_(weight, std=INITIALIZER_STD, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(weight)
    return part


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy over the samples of a (micro-)batch."""
    return nn.functional.cross_entropy(logits, labels)


def samples(plan: Any, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens (count, sequence) and labels (count), all random."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, plan.vocabulary, (count, plan.sequence), generator=generator)
    return tokens, torch.randint(0, LABELS, (count,), generator=generator)
