"""The five sizes of the transformer as CPUs run them; what is timed before the first profile."""

import pytest

from labkit.theory.transformer import NAMES, SIZES
from lessons.benchmarking.plan import SMALL_SIZES, Launches, Profiles


def test_the_sizes_for_cpus_keep_their_order():
    for part in (0, 2):
        order = sorted(NAMES, key=lambda name: SIZES[name][part])
        assert sorted(NAMES, key=lambda name: SMALL_SIZES[name][part]) == order
    assert all(hidden % (2 * heads) == 0 for hidden, _, _, heads in SMALL_SIZES.values())


@pytest.mark.parametrize("kind", [Launches, Profiles])
def test_all_is_timed_before_the_first_profile(kind):
    """A profiler's hooks outlive it and slow every later launch of the process."""
    profiled = [point.profiled for point in kind.small().points()]
    assert profiled == sorted(profiled) and 0 < sum(profiled) < len(profiled)
