"""Laws of scaling, schedules and shares, and the judges of what students write."""

import random
from itertools import cycle, islice

import pytest
from torch.utils.data import DistributedSampler

from labkit.course.verdict import RIGHT
from lessons.scaling import theory
from lessons.scaling.exercises import check, judge_rates, judge_shard, verdict_of

SHARDS, SCHEDULES = (check.by_name[name].inputs for name in ("shard", "rates"))


@pytest.mark.parametrize(("law", "speedup"), [("strong", theory.amdahl), ("weak", theory.gustafson)])
@pytest.mark.parametrize("share", [0.0, 0.03, 0.4])
def test_a_law_is_found_again(law, speedup, share):
    counts = [1, 2, 4, 8]
    speedups = [speedup(share, count) for count in counts]
    found = theory.fit_serial(law, counts, speedups, [0, 0, 0, 0])
    assert (found.share, found.least, found.most) == pytest.approx((share, share, share))
    spread = theory.fit_serial(law, counts, speedups, [0, 0.1, 0.1, 0.1])
    assert spread.least < share < spread.most


def test_a_fit_needs_two_gpus():
    with pytest.raises(ValueError, match="more than one GPU"):
        theory.fit_serial("strong", [1], [1.0], [0.0])


def share_of_order(order, ranks, rank, drop_last):
    """Return one rank's share of an epoch's order: every `ranks`-th number, filled up from the order's beginning."""
    each = len(order) // ranks if drop_last else -(-len(order) // ranks)
    return list(islice(cycle(order), each * ranks))[rank::ranks]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("images", "ranks"), [(12, 3), (10, 4), (3, 4), (101, 2)])
def test_our_shares_are_torchs(images, ranks, drop_last):
    for rank in range(ranks):
        sampler = DistributedSampler(range(images), ranks, rank, shuffle=False, drop_last=drop_last)
        if images >= ranks or not drop_last:
            assert share_of_order(range(images), ranks, rank, drop_last) == list(sampler)


def test_a_rate_climbs_and_falls():
    rates = [theory.learning_rate(step, 10, 4, 0.8) for step in range(10)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])
    assert rates[9] == pytest.approx(0.8 / 6)
    assert theory.scaled_rate(2048) == pytest.approx(16 * theory.BASE_RATE)


def right_shard(images, ranks, rank, epoch, drop_last):
    order = list(range(images))
    random.Random(epoch).shuffle(order)
    return share_of_order(order, ranks, rank, drop_last)


def unshuffled(images, ranks, rank, epoch, drop_last):
    return share_of_order(range(images), ranks, rank, drop_last)


def shuffled_by_rank(images, ranks, rank, epoch, drop_last):
    order = list(range(images))
    random.Random(10 * epoch + rank).shuffle(order)
    return share_of_order(order, ranks, rank, drop_last)


def unpadded(images, ranks, rank, epoch, drop_last):
    order = list(range(images))
    random.Random(epoch).shuffle(order)
    return order[rank::ranks]


def always_dropped(images, ranks, rank, epoch, drop_last):
    return right_shard(images, ranks, rank, epoch, True)


def everything(images, ranks, rank, epoch, drop_last):
    return right_shard(images, 1, 0, epoch, drop_last)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (right_shard, None),
        (unshuffled, "reshuffle"),
        (shuffled_by_rank, "coverage"),
        (unpadded, "uneven"),
        (always_dropped, "count"),
        (everything, "count"),
        (lambda *arguments: None, "form"),
        (lambda images, *others: [images], "outside"),
    ],
)
def test_a_sampler_is_judged(answer, fault):
    verdict = judge_shard([answer(*arguments) for arguments in SHARDS], SHARDS)
    assert (verdict.outcome == RIGHT) == (fault is None), verdict
    assert fault is None or fault in verdict.faults, verdict


def right_rates(steps, warm_up_steps, batch, base_batch, base_rate):
    peak = base_rate * batch / base_batch
    return [theory.learning_rate(step, steps, warm_up_steps, peak) for step in range(steps)]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (right_rates, None),
        (lambda steps, warm, batch, base, rate: right_rates(steps, warm, base, base, rate), "peak"),
        (lambda steps, warm, *others: [0.0, *right_rates(steps, warm, *others)[:-1]], "warm_up"),
        (lambda steps, warm, *others: right_rates(steps, warm, *others)[:-1], "form"),
        (
            lambda steps, warm, *others: [
                min(one, max(right_rates(steps, warm, *others)))
                for one in [*right_rates(steps, warm, *others)[:-1], 0.0]
            ],
            "decay",
        ),
    ],
)
def test_learning_rates_are_judged(answer, fault):
    verdict = judge_rates([answer(*arguments) for arguments in SCHEDULES], SCHEDULES)
    assert (verdict.outcome == RIGHT) == (fault is None), verdict
    assert fault is None or fault in verdict.faults, verdict


def test_a_symptom_names_its_bug():
    right = {"variant": "right", "ranks": 2, "distinct": 1.0, "repeated": 0.0, "validated": 1.0}
    assert not verdict_of(right).faults
    wrong = {
        "no_sampler": {"distinct": 0.5},
        "no_set_epoch": {"repeated": 1.0},
        "one_shard": {"validated": 0.5},
    }
    for name, change in wrong.items():
        assert set(verdict_of(right | change).faults) == {name}
