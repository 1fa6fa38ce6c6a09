"""The course's transformer: its FLOP, counted by torch, as theory counts it."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from labkit.theory.transformer import forward_flop, transformer
from labkit.worker.transformer import Transformer


def test_the_flop_of_a_forward_are_those_that_torch_counts():
    hidden, inner, layers, heads = 64, 256, 4, 2
    with torch.device("meta"):
        model = Transformer(500, 32, hidden, inner, layers, heads)
        tokens = torch.zeros(4, 32, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        model(tokens, tokens)
    theory = forward_flop(transformer(hidden, inner, layers, 500), hidden, 32, 4)
    assert theory == counter.get_total_flops()
