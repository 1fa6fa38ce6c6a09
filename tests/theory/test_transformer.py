"""The course's transformer: its FLOP, counted by torch, and the five sizes that CPUs run."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from labkit.theory.transformer import NAMES, SIZES, SMALL_SIZES, forward_flop, transformer
from labkit.worker.transformer import Transformer


def test_the_flop_of_a_forward_are_those_that_torch_counts():
    hidden, inner, layers, heads = SMALL_SIZES["medium"]
    with torch.device("meta"):
        model = Transformer(500, 32, hidden, inner, layers, heads)
        tokens = torch.zeros(4, 32, dtype=torch.long)
    counter = FlopCounterMode(display=False)
    with counter:
        model(tokens, tokens)
    theory = forward_flop(transformer(hidden, inner, layers, 500), hidden, 32, 4)
    assert theory == counter.get_total_flops()


def test_the_sizes_for_cpus_keep_their_order():
    for part in (0, 2):
        order = sorted(NAMES, key=lambda name: SIZES[name][part])
        assert sorted(NAMES, key=lambda name: SMALL_SIZES[name][part]) == order
    assert all(hidden % (2 * heads) == 0 for hidden, _, _, heads in SMALL_SIZES.values())
