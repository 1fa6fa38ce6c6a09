"""A split layer before anything runs: who has which part, what is sent and kept, and from which width on it pays."""

from __future__ import annotations

from labkit.theory.shapes import elements
from labkit.theory.step_memory import Shape
from labkit.theory.traffic import Sent
from labkit.theory.transformer import transformer

STRATEGIES = {
    "ddp": "torch's DDP",
    "fsdp": "torch's fully_shard",
    "torch": "torch's tensor parallelism",
    "tensor": "ours, tensor parallel",
    "sequence": "ours, sequence parallel, too",
    "tensor_silent": "ours, nothing sent",
    "sequence_silent": "ours, sequence, nothing sent",
}
HELD = ("parameters", "gradients", "optimizer", "activations")  # what tensors are counted as
COLUMN = ("query", "key", "value", "gate", "up")  # split by rows of the weight: each rank has some outputs
ROW = ("out", "down")  # split by columns of the weight: each rank has some inputs
VOCABULARY = ("embedding", "head")


def local_part(layer: str, outputs: int, inputs: int, ranks: int, rank: int) -> list[int]:
    """Return which part of a weight (outputs, inputs) a rank has: first row, the one after the last, then columns.

    An embedding is (words, width), a norm (width, 1); a norm is whole on every rank.
    """
    rows, columns = [0, outputs], [0, inputs]
    if layer in (*COLUMN, *VOCABULARY):
        rows = [rank * outputs // ranks, (rank + 1) * outputs // ranks]
    elif layer in ROW:
        columns = [rank * inputs // ranks, (rank + 1) * inputs // ranks]
    return [*rows, *columns]


def held_elements(hidden: int, inner: int, layers: int, vocabulary: int, ranks: int) -> int:
    """Return the weights that a rank holds: its parts, and all norms."""
    whole = transformer(hidden, inner, layers, vocabulary)
    norms = (2 * layers + 1) * hidden
    return (whole.parameters - norms) // ranks + norms


def traffic(shape: Shape, ranks: int, sequence: bool, element_bytes: int) -> list[Sent]:
    """Return the calls of a step and the bytes of their whole tensors.

    A block enters two parallel parts and leaves them, the embedding leaves one, the head enters one; backward does the
    opposite. The loss sends a maximum and two sums, a float32 number a token. With `sequence`, an all-reduce becomes an
    all-gather and a reduce-scatter, and each norm's gradient is summed.
    """
    passes = 2 * shape.layers + 1  # parts that are entered, and left
    activation = shape.tokens * shape.hidden * element_bytes
    loss = Sent("all-reduce", 3, 3 * 4 * shape.tokens)
    if not sequence:
        return [Sent("all-reduce", 2 * passes + loss.calls, 2 * passes * activation + loss.bytes)]
    norms = Sent("all-reduce", loss.calls + passes, loss.bytes + passes * shape.hidden * element_bytes)
    return [
        Sent("all-gather", 2 * passes, 2 * passes * activation),
        Sent("reduce-scatter", 2 * passes, 2 * passes * activation),
        norms,
    ]


def kept_bytes(shape: Shape, ranks: int, sequence: bool, element_bytes: int) -> float:
    """Return the bytes that forward keeps for backward on a rank, on a GPU.

    A token and block: what goes into both norms and comes out of them (4 × hidden), q, k, v and the attention's output
    (4 × hidden), and 4 × inner. Tensor parallelism splits all but the first four; with `sequence` what goes into the
    norms is split, too, but what comes out of them has been gathered. Then a last norm, and float32 exponentials of
    this rank's words.
    """
    norms = (1 + 1 / ranks) if sequence else 2  # widths: what goes into a norm, and comes out
    block = 2 * norms * shape.hidden + (4 * shape.hidden + 4 * shape.inner) / ranks
    rest = element_bytes * norms * shape.hidden + 4 * shape.vocabulary / ranks
    return shape.tokens * (shape.layers * element_bytes * block + rest)


def width_to_pay(
    flop_per_s: float, bytes_per_s: float, ranks: int, inner: float = 3.5, element_bytes: int = 2
) -> float:
    """Return the width from which a block computes longer than it sends.

    A block has (4 + 3·inner)·width² weights, 6 FLOP a token each over the ranks; it sends four all-reduces of a row a
    token, 2(N−1)/N of it through a link. Tokens cancel. `inner`: the perceptron's width, in widths.
    """
    sent = 4 * 2 * (ranks - 1) / ranks * element_bytes / bytes_per_s
    computed = 6 * (4 + 3 * inner) / ranks / flop_per_s
    return sent / computed


def step_s(
    parameters: float,
    layers: int,
    width: int,
    tokens: int,
    tensor: int,
    data: int,
    *,
    flop_per_s: float,
    tensor_bytes_per_s: float,
    data_bytes_per_s: float,
) -> tuple[float, float, float]:
    """Return seconds of a step: computing, sending inside layers, and of the gradients' all-reduce what is not hidden.

    `tokens` of all ranks; `tensor` ranks split each layer, `data` groups of them average gradients, which backward can
    hide: two thirds of computing. bfloat16.
    """
    own = tokens / data
    computing = 6 * parameters * own / tensor / flop_per_s
    inside = 4 * layers * 2 * (tensor - 1) / tensor * own * width * 2 / tensor_bytes_per_s
    gradients = 2 * (data - 1) / data * 2 * parameters / tensor / data_bytes_per_s
    return computing, inside, max(0.0, gradients - 2 / 3 * computing)


def matrices(hidden: int, inner: int, layers: int, vocabulary: int) -> int:
    """Return the elements of all matrices that multiply every token."""
    model = transformer(hidden, inner, layers, vocabulary)
    return layers * elements(model.block) + vocabulary * hidden
