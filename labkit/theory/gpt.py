"""GPT-2 as shapes, bytes and FLOP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from labkit.engine.errors import PlanError
from labkit.theory.shapes import Model, configuration
from labkit.theory.training import Training, roomy

FILES = {"GPT-2 small": "gpt2", "GPT-2 medium": "gpt2-medium", "GPT-2 Large": "gpt2-large", "GPT-2 XL": "gpt2-xl"}
GPT2 = {name: configuration(file) for name, file in FILES.items()}
# layers, hidden, heads; the last three have their authors' sizes (Touvron and others, 2023)
SIZES = {name: (knobs["n_layer"], knobs["n_embd"], knobs["n_head"]) for name, knobs in GPT2.items()} | {
    "7 B": (32, 4096, 32),
    "13 B": (40, 5120, 40),
    "65 B": (80, 8192, 64),
}
VOCABULARY: int = GPT2["GPT-2 Large"]["vocab_size"]
LADDER = {  # from the report's configuration up, a rung changes one knob and keeps the others; {}: as many as fit
    "float32": {"micro_batch": 0},
    "bfloat16 autocast": {"precision": "autocast"},
    "fused attention": {"attention": "fused"},
    "fused AdamW": {"fused": True},
    "torch.compile": {"compiled": "blocks"},
    "padded vocabulary": {"pad": True},
    "bfloat16 weights": {"precision": "bfloat16"},
    "larger micro-batch": {},
    "one graph": {"compiled": "whole"},
    "by hand": {"compiled": "by hand", "precision": "bfloat16"},
    "float8 products": {"compiled": "by hand, float8"},
}


def gpt(layers: int, hidden: int, vocabulary: int = VOCABULARY, positions: int = 1024) -> Model:
    """Return GPT-2 with its head tied to the embedding: LayerNorms, q, k, v in one matrix, four times wider inside."""
    row = (hidden,)
    block = (
        row,
        row,
        (3 * hidden, hidden),
        (3 * hidden,),
        (hidden, hidden),
        row,
        row,
        row,
        (4 * hidden, hidden),
        (4 * hidden,),
        (hidden, 4 * hidden),
        row,
    )
    return Model(((vocabulary, hidden), (positions, hidden)), block, (row, row), layers)


def flop_per_token(parameters: int, layers: int, hidden: int, sequence: int) -> float:
    """Return the FLOP of training on one token: 6 per parameter, and 12·layers·hidden·sequence for attention.

    A multiply-add counts as two, backward as twice the forward; attention as if it were not causal (Chowdhery and
    others, "PaLM", 2022, appendix B).
    """
    return 6.0 * parameters + 12.0 * layers * hidden * sequence


def padded(vocabulary: int, multiple: int = 128) -> int:
    """Return the vocabulary rounded up, so that tensor cores need no remainder."""
    return -(-vocabulary // multiple) * multiple


def activations(
    layers: int, hidden: int, heads: int, vocabulary: int, micro_batch: int, sequence: int, element_bytes: int = 4
) -> int:
    """Return the bytes that the forward of one micro-batch keeps for its backward, attention by a fused kernel.

    In units of tokens × hidden a block keeps 16: its input, the first LayerNorm's output, q, k and v, the attention's
    output, the second LayerNorm's input and output, four before GELU and four after. The head keeps its LayerNorm's
    input and output, and one number per token and word. Beside them stand rows of statistics in float32: one number per
    head and token from the attention, two per token from each LayerNorm. Compiled or not: it is the same.
    """
    tokens = micro_batch * sequence
    statistics = tokens * (layers * (heads + 4) + 2) * 4
    return tokens * ((16 * layers + 2) * hidden + vocabulary) * element_bytes + statistics


_COMPILED = ("no", "blocks", "whole", "by hand", "by hand, float8")
_CHOICES = {"attention": ("plain", "fused"), "synced": ("every", "last"), "compiled": _COMPILED}
_SMALL: dict[str, Any] = {"layers": 3, "hidden": 96, "heads": 3, "words": 500, "sequence": 32}
_SMALL |= {"batch": 16, "micro_batch": 4, "precision": "float32", "warm_ups": 1, "repeats": 3}


@dataclass(frozen=True, kw_only=True)
class GptTraining(Training):
    """GPT-2 Large, unless told otherwise: `batch` sequences per step over all ranks, `micro_batch` of them at a time.

    A point adds micro_batch and micro_batches (accumulated per step), attention (plain, or torch's fused kernels),
    vocabulary (rows of the embedding) and synced (whether every micro-batch exchanges gradients, or the last).
    `compiled` is "no", "blocks" (one graph for all of them, and one for the head), "whole", or "by hand": a step
    that is written out, and needs no compiler; "by hand, float8" multiplies the blocks' matrices in float8.
    """

    SMALL: ClassVar[dict[str, Any]] = _SMALL
    FEW: ClassVar[int | None] = 2
    LARGE: ClassVar[tuple[int, int] | None] = None  # sequences that a roomy GPU holds, and one of 80 GB

    layers: int = 36
    hidden: int = 1280
    heads: int = 20
    words: int = VOCABULARY
    sequence: int = 1024
    batch: int = 32
    micro_batch: int = 8
    precision: str = "bfloat16"
    warm_ups: int = 3
    repeats: int = 6

    def validate(self) -> None:
        if self.hidden % self.heads:
            raise PlanError(f"hidden={self.hidden} does not divide into heads={self.heads}")
        super().validate()
        for knobs in self.knobs():
            for name, allowed in _CHOICES.items():
                self.require(name, knobs[name], allowed)
            if knobs["batch"] != (whole := knobs["ranks"] * knobs["micro_batch"]) * knobs["micro_batches"]:
                raise PlanError(f"batch={knobs['batch']} is no multiple of ranks × micro_batch, {whole}")

    def model(self, vocabulary: int) -> Model:
        """The model as its parameters' shapes, with `vocabulary` rows in its embedding."""
        return gpt(self.layers, self.hidden, vocabulary, self.sequence)

    def setting(
        self,
        strategy: str = "single",
        ranks: int = 1,
        *,
        micro_batch: int = 0,
        batch: int = 0,
        precision: str = "",
        fused: bool = True,
        compiled: str | None = None,
        attention: str = "fused",
        pad: bool = True,
        synced: str = "last",
        times: int = 1,
    ) -> dict[str, Any]:
        """Return a point's knobs; without a batch, `times` micro-batches per rank. CPUs do not compile (slow)."""
        micro = micro_batch or self.micro_batch
        batch = batch or micro * ranks * times
        sizes = {"strategy": strategy, "ranks": ranks, "batch": batch, "micro_batch": micro}
        sizes |= {"micro_batches": batch // (micro * ranks), "precision": precision or self.precision, "fused": fused}
        compiled = (compiled or "blocks") if self.device == "cuda" else "no"
        rows = padded(self.words) if pad else self.words
        return sizes | {"compiled": compiled, "attention": attention, "synced": synced, "vocabulary": rows}

    @classmethod
    def full(cls, **knobs: Any) -> Self:
        large: dict[str, Any] = {"large": cls.LARGE[0 if roomy() else 1]} if cls.LARGE else {}
        return super().full(**large | knobs)
