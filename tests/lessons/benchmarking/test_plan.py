"""The five sizes of the transformer as CPUs run them."""

from labkit.theory.transformer import NAMES, SIZES
from lessons.benchmarking.plan import SMALL_SIZES


def test_the_sizes_for_cpus_keep_their_order():
    for part in (0, 2):
        order = sorted(NAMES, key=lambda name: SIZES[name][part])
        assert sorted(NAMES, key=lambda name: SMALL_SIZES[name][part]) == order
    assert all(hidden % (2 * heads) == 0 for hidden, _, _, heads in SMALL_SIZES.values())
