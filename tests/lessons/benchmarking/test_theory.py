"""The queue and the launch model, before anything runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lessons.benchmarking.theory import (
    Queue,
    attention_work,
    forward_tflop,
    line,
    parameters_of,
)

TIMES = st.floats(0.1, 100)


@given(st.integers(1, 60), TIMES, TIMES)
def test_the_end_of_a_queue_is_that_of_its_last_kernel(kernels, launch_us, kernel_us):
    queue = Queue(kernels, launch_us, kernel_us)
    assert queue.end_us == pytest.approx(queue.spans[-1][2])
    assert 0 <= queue.idle_share < 1
    assert queue.launch_bound == (launch_us > kernel_us)
    for (_, _, before), (launched, begun, _) in zip(queue.spans, queue.spans[1:], strict=False):
        assert begun == max(launched, before)


def test_a_launch_bound_queue_takes_its_launches_and_another_one_its_kernels():
    assert Queue(100, 6, 2).end_us == pytest.approx(100 * 6 + 2)
    assert Queue(100, 2, 6).end_us == pytest.approx(2 + 100 * 6)


def test_a_line_needs_two_places():
    assert line([1, 2, 3], [3, 5, 7]) == (2, 1)
    with pytest.raises(ValueError, match="two different"):
        line([4, 4], [1, 2])


def test_attention_does_most_flop_in_products_and_softmax_moves_every_score_twice():
    parts = attention_work(4, 12, 128, 64, 4)
    scores = 4 * 12 * 128**2
    assert (
        parts["scores"] == parts["values"] == {"flop": 2 * scores * 64, "moved_bytes": 4 * (2 * scores // 2 + scores)}
    )
    assert parts["softmax"] == {"flop": 5 * scores, "moved_bytes": 2 * 4 * scores}


def test_the_sizes_are_the_published_ones():
    assert parameters_of("small") == 128_625_408
    assert forward_tflop("2.7b") == pytest.approx(3.484, rel=1e-3)
