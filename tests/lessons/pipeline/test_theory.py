"""Lab 03's simulator: schedules are whole and orderly, spans keep every dependency, and the closed forms come out."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.engine.errors import PlanError
from lessons.pipeline.theory.queues import PAIR, RANK, posted, queue_of, simulate_posted
from lessons.pipeline.theory.schedules import (
    Step,
    even_split,
    every_split,
    heavy_split,
    layers_of,
    order_of,
)
from lessons.pipeline.theory.simulator import (
    Times,
    bubble,
    closed_form,
    in_flight,
    simulate,
    step_time,
)

SCHEDULES = ("forward_only", "gpipe", "1f1b", "interleaved", "zero_bubble")


def fits(schedule: str, ranks: int, count: int) -> bool:
    return schedule != "interleaved" or count % max(1, count // ranks) == 0


@st.composite
def pipelines(draw):
    """Give a schedule of any size with times of its own for every stage."""
    schedule, ranks = draw(st.sampled_from(SCHEDULES)), draw(st.integers(1, 6))
    count = draw(st.integers(1, 12).filter(lambda m: fits(schedule, ranks, m)))
    chunks = draw(st.integers(1, 3)) if schedule == "interleaved" else 1
    some = st.floats(0.1, 9)
    forward, backward = (draw(st.lists(some, min_size=ranks * chunks, max_size=ranks * chunks)) for _ in range(2))
    weight = [b * draw(st.floats(0, 1)) for b in backward]
    return order_of(schedule, ranks, count, chunks), Times(forward, backward, weight, draw(st.floats(0, 2))), count


@settings(max_examples=60, deadline=None)
@given(pipelines())
def test_every_pipeline_is_whole_orderly_and_causal(made):
    order, times, count = made
    spans = simulate(order, times)
    steps = [span for span in spans if span.kind != "T"]
    stages = {span.stage for span in steps}
    kinds = Counter((span.kind, span.stage, span.micro_batch) for span in steps)
    trained = any(span.kind != "F" for span in steps)
    split = any(span.kind == "W" for span in steps)
    wanted = ("F", "I", "W") if split else ("F", "B") if trained else ("F",)
    assert kinds == Counter((kind, stage, i) for kind in wanted for stage in stages for i in range(count))
    for rank in range(len(order)):
        # An empty span overlaps nothing, and rounding may put it behind the span that begins with it.
        own = sorted((span.start, span.end) for span in spans if span.rank == rank and span.end - span.start > 1e-9)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(own)), "two spans of a rank overlap"
    done = {("B" if s.kind == "I" else s.kind, s.stage, s.micro_batch): s for s in steps}
    for span in steps:
        needs = {"F": [("F", span.stage - 1)], "W": [("B", span.stage)]}.get(
            span.kind, [("F", span.stage), ("B", span.stage + 1)]
        )
        for kind, stage in needs:
            if stage in stages:
                before = done[(kind, stage, span.micro_batch)]
                moved = times.transfer if before.rank != span.rank else 0.0
                assert before.end + moved <= span.start + 1e-9
    assert 0 <= bubble(spans) < 1


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_closed_forms(schedule, ranks):
    for count in (ranks, 2 * ranks, 32):
        for chunks in (1, 2, 3) if schedule == "interleaved" else (1,):
            if not fits(schedule, ranks, count) or (schedule == "interleaved" and chunks == 1):
                continue
            parts = [1 / chunks] * (ranks * chunks)
            spans = simulate(order_of(schedule, ranks, count, chunks), Times(parts, [2 * part for part in parts]))
            assert bubble(spans) == pytest.approx(closed_form(schedule, ranks, count, chunks))


@pytest.mark.parametrize(
    ("schedule", "kept"), [("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("zero_bubble", [4, 4, 4, 4])]
)
def test_micro_batches_in_flight(schedule, kept):
    assert in_flight(simulate(order_of(schedule, 4, 8), Times([1] * 4, [2] * 4))) == kept


def test_by_hand():
    spans = simulate(order_of("gpipe", 2, 2), Times([1, 2], [3, 4], transfer=0.5, update=[0.25, 0.25]))
    assert step_time(spans) == pytest.approx(1 + 0.5 + 2 + 0.5 * 0 + 0.5 + 2 + 4 + 4 + 0.5 + 3 + 0.25)


def test_a_schedule_that_waits_forever_names_the_step():
    order = [[Step("B", 0, 0), Step("F", 0, 0)], [Step("F", 1, 0), Step("B", 1, 0)]]
    with pytest.raises(ValueError, match="rank 0 waits forever before B0 of stage 0"):
        simulate(order, Times([1, 1], [1, 1]))


def test_rank_0_posts_the_next_round_before_its_second_step():
    entries = [str(e.kind) + str(e.micro_batch) if isinstance(e, Step) else e.what for e in posted(four())[0]]
    assert entries[:6] == ["F0", "send", "receive", "F1", "send", "receive"]
    received = posted(four())[0][2]
    assert (received.key, received.peer) == (("F", 4, 0), 3)


def four():
    return order_of("interleaved", 4, 8, 3)


def test_one_queue_makes_interleaving_worse_than_1f1b_and_a_queue_per_pair_does_not():
    """Equal stages: by formula 11.1 %."""
    parts = Times([1 / 3] * 12, [2 / 3] * 12)
    one, pairs = (bubble(simulate_posted(four(), parts, queue)) for queue in (RANK, PAIR))
    assert one == pytest.approx(0.321, abs=0.002)
    assert pairs < 0.15 < closed_form("1f1b", 4, 8) < one


@settings(max_examples=60, deadline=None)
@given(pipelines(), st.sampled_from([RANK, PAIR]))
def test_queues_delay_but_change_no_step(made, queue):
    order, times, _ = made
    spans = simulate_posted(order, times, queue)
    assert sorted(s[1:4] for s in spans) == sorted(s[1:4] for s in simulate(order, times) if s.kind != "T")
    for rank in range(len(order)):
        own = sorted((s.start, s.end) for s in spans if s.rank == rank)
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(own)), "two spans of a rank overlap"


def test_torchs_version_chooses_the_queue():
    assert queue_of("2.11.0+cu130") == RANK and queue_of("2.12.0") == PAIR == queue_of("3.0.0a1")


@pytest.mark.parametrize("schedule", ["interleaved", "zero_bubble", "gpipe"])
def test_our_lists_are_torchs(schedule):
    """torch's own schedule objects list the same steps in the same order on every rank.

    What 1F1B lists, it does not run (its list leaves micro-batch 0 out on the last rank); the traced run tells there.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage

    from lessons.pipeline.worker.pipe import ONE_STAGE, SCHEDULES

    if not hasattr(SCHEDULES["interleaved"], "_calculate_single_rank_operations"):
        pytest.skip("this torch builds its lists elsewhere")
    ranks, chunks = 4, 3 if schedule == "interleaved" else 1
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        count = ranks * chunks
        stages = [PipelineStage(torch.nn.Identity(), s, count, torch.device("cpu")) for s in range(chunks)]
        for stage in stages:
            stage.group_size = ranks
        made = SCHEDULES[schedule](stages[0] if schedule in ONE_STAGE else stages, 8, loss_fn=print)
        letters = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
        for rank, steps in enumerate(order_of(schedule, ranks, 8, chunks)):
            actions = [a for a in made.pipeline_order[rank] if a is not None and a.computation_type.name in letters]
            assert [(letters[a[1].name], a[0], a[2]) for a in actions] == [tuple(step) for step in steps]
    finally:
        dist.destroy_process_group()


def test_splits():
    assert even_split(12, 4) == "3-3-3-3"
    assert heavy_split(12, 4) == "6-2-2-2"
    assert heavy_split(12, 3) == "6-3-3"
    assert heavy_split(4, 2) == "3-1"
    assert len(list(every_split(12, 4))) == 165
    assert all(sum(cut) == 12 and min(cut) >= 1 for cut in every_split(12, 4))
    assert layers_of("6-2-2-2") == [6, 2, 2, 2]
    with pytest.raises(PlanError, match="12 layers do not divide into 5 equal stages; 1, 2, 3, 4, 6, 12 stages do"):
        even_split(12, 5)
