"""What a rank of a pipeline holds at its fullest moment, before anything runs."""

from __future__ import annotations

from types import SimpleNamespace

from labkit.theory.bert import autocast_activations, bert_activations
from labkit.theory.shapes import Model, elements
from lessons.pipeline.theory.schedules import layers_of, order_of
from lessons.pipeline.theory.simulator import Times, in_flight, simulate

# In units of a micro-batch's hidden state: the input of a perceptron with four before and four after GELU, and the
# gradient of what goes into GELU.
_INSIDE, _BACKWARD = 9, 4


def needed_bytes(model: Model, hidden: int, heads: int, batch: int, sequence: int, point: SimpleNamespace) -> float:
    """Return the bytes that the fullest rank holds at most; float32 weights, AdamW.

    A stage that only runs forward holds its outputs and what one layer needs at a time. In mode "kept" it holds all
    activations. In training it holds the optimizer's states, too, the gradients from the first backward on, and the
    activations of as many micro-batches as the schedule has in flight. Under zero bubble a micro-batch whose gradients
    of weights are late, as many as the rank's number, counts twice: gradients of its activations are kept beside them.
    """
    stages, count = layers_of(point.split), point.micro_batches
    state = 4 * batch * sequence * hidden  # of all micro-batches
    weights = [4 * layers * elements(model.block) for layers in stages]
    weights[0] += 4 * elements(model.before)
    weights[-1] += 4 * elements(model.after)
    activations = [_activations((layers, hidden, heads, batch, sequence), point) for layers in stages]
    activations[1:] = [size - state for size in activations[1:]]  # what goes into the embedding's LayerNorm
    held, kept = ([sum(sizes[rank :: point.ranks]) for rank in range(point.ranks)] for sizes in (weights, activations))
    if point.mode == "kept":
        return max(map(sum, zip(held, kept, strict=True)))
    if point.mode != "training":
        scores = 2 * 4 * heads * batch * sequence**2 if getattr(point, "attention", "fused") == "plain" else 0
        return max(held) + state + max(_INSIDE * state, _BACKWARD * state + scores) / count
    order = order_of(point.schedule, point.ranks, count, len(stages) // point.ranks)
    flights = in_flight(simulate(order, Times([1.0] * len(stages), [2.0] * len(stages))), activations)
    moments = []
    for rank, (own, every, most) in enumerate(zip(held, kept, flights, strict=True)):
        copies = 3 if most == count * every else 4  # where all is kept at once, no gradient is there yet
        late = min(rank, count) * every if point.schedule == "zero_bubble" else 0
        moments.append(copies * own + state + (most + late + _BACKWARD * state) / count)
    return max(moments)


def _activations(sizes: tuple[int, int, int, int, int], point: SimpleNamespace) -> int:
    """Return the bytes that a first stage keeps of all micro-batches; sizes: layers, hidden, heads, batch, sequence."""
    if point.precision == "autocast":
        return autocast_activations(*sizes)
    attention, dropout = getattr(point, "attention", "fused"), getattr(point, "dropout", 0.0)
    return bert_activations(*sizes, attention=attention, dropout=dropout > 0)
