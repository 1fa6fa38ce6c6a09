"""GPT-2 as shapes, bytes and FLOP."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.theory.memory import BYTES_PER_PARAMETER, ledger
from labkit.theory.shapes import Model, configuration

FILES = {"GPT-2 small": "gpt2", "GPT-2 medium": "gpt2-medium", "GPT-2 Large": "gpt2-large", "GPT-2 XL": "gpt2-xl"}
GPT2 = {name: configuration(file) for name, file in FILES.items()}
# layers, hidden, heads; the last three have their authors' sizes (Touvron and others, 2023)
SIZES = {name: (knobs["n_layer"], knobs["n_embd"], knobs["n_head"]) for name, knobs in GPT2.items()} | {
    "7 B": (32, 4096, 32),
    "13 B": (40, 5120, 40),
    "65 B": (80, 8192, 64),
}
VOCABULARY: int = GPT2["GPT-2 Large"]["vocab_size"]


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


def bytes_per_parameter(precision: str) -> tuple[int, int]:
    """Return the bytes of a weight and of its states; autocast leaves both in float32."""
    return BYTES_PER_PARAMETER["bfloat16" if precision == "bfloat16" else "float32"]


def held(model: Model, point: SimpleNamespace, kept_bytes: int) -> dict[str, int]:
    """Return the ledger of a point of this lesson whose backward begins with `kept_bytes`."""
    size, state_bytes = bytes_per_parameter(point.precision)
    counts = {"micro_batches": point.micro_batches, "exchanges": point.micro_batches if point.synced == "every" else 1}
    return ledger(model, point.strategy, point.ranks, kept_bytes, element_bytes=size, state_bytes=state_bytes, **counts)


def forward_bytes(layers: int, hidden: int, heads: int, sequence: int, point: SimpleNamespace, sequences: int) -> int:
    """Return what there is of some sequences, at a point's precision, where the backward of its loss is done.

    That is `activations`, and:

    - Under autocast the residual stream and what the last LayerNorm reads are float32. Eager code keeps the weights'
      bfloat16 copies and float32 log-probabilities; compiled code makes the copies anew and keeps bfloat16 logits.
    - Plain attention keeps its weights, one per head and pair of tokens, and no number per head and token; under
      autocast in float32, as softmax gives them, and in bfloat16. Once a block it keeps which pairs are masked, too.
    - Eager, the gradients of log-probabilities and of logits stand beside the log-probabilities. In compiled code and
      in the step by hand the logits become their own gradient.
    """
    autocast, eager = point.precision == "autocast", point.compiled == "no"
    size = 2 if point.precision in ("autocast", "bfloat16") else 4
    tokens, probabilities = sequences * sequence, sequences * sequence * point.vocabulary
    total = activations(layers, hidden, heads, point.vocabulary, sequences, sequence, size)
    if autocast:
        total += 2 * tokens * (2 * layers + 1) * hidden
    if autocast and eager:
        total += 2 * gpt(layers, hidden, point.vocabulary, sequence).parameters + 2 * probabilities
    if point.attention == "plain":
        total += layers * (tokens * heads * (sequence * (size + 4 * autocast) - 4) + sequence**2)
    if eager:
        total += 2 * probabilities * bytes_per_parameter(point.precision)[0]
    return total


def needed_bytes(layers: int, hidden: int, heads: int, sequence: int, point: SimpleNamespace) -> int:
    """Return what a rank holds at the fullest moment of a point of this lesson."""
    model = gpt(layers, hidden, point.vocabulary, sequence)
    forward = forward_bytes(layers, hidden, heads, sequence, point, point.micro_batch)
    if point.compiled.startswith("by hand"):
        # Beside 16 of its own the model that the weights came from; float8 first keeps a gradient to compare it.
        return model.parameters * (20 if point.compiled.endswith("float8") else 18) + forward
    items, (size, state_bytes) = held(model, point, forward), bytes_per_parameter(point.precision)
    # An update in several kernels takes square roots of all second moments before it uses one (torch's foreach). Where
    # it turns the gradients into float32, DDP's buckets stay beside them.
    update = items["parameters"] // size * (size + 4 + state_bytes + (0 if point.fused else 4))
    buckets = model.parameters * size if point.strategy == "ddp" and size < 4 else 0
    return max(sum(items.values()), update + buckets)
