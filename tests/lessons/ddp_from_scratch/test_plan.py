"""Lab 10's plans: what they measure, and which knobs contradict each other."""

import pytest

from labkit.engine.errors import PlanError
from lessons.ddp_from_scratch.plan import CASES, OURS, STRATEGIES, Buckets, Equality, Trial
from lessons.ddp_from_scratch.plan import Implementations as All


def test_only_strategies_with_buckets_are_told_a_size():
    asked = {point.strategy: point.bucket_mb for point in All(device="cpu", gpus=2, bucket_mb=7).points()}
    assert list(asked) == list(STRATEGIES)
    assert asked == dict.fromkeys(("none", "naive", "flat", "overlapped"), 0) | {"bucketed": 7, "ddp": 7}


def test_a_sweep_measures_its_sizes_beside_the_others_round_after_round():
    points = Buckets(device="cpu", gpus=3, seeds=(0, 1), buckets_mb=(1, 1000)).points()
    settings = [(point.strategy, point.bucket_mb) for point in points]
    assert settings[:5] == [("none", 0), ("overlapped", 0), ("ddp", 25), ("bucketed", 1), ("bucketed", 1000)]
    assert settings[:5] == settings[5:]
    assert {point.ranks for point in points} == {3}


def test_the_full_model_is_xl():
    assert All(device="cpu", gpus=2).model.parameters == 1_998_235_200
    assert len(All(device="cpu", gpus=2).model.shapes) == 435


def test_equality_tries_every_case_with_each_of_ours():
    points = Equality.small(device="cpu", gpus=2).points()
    assert [(point.case, point.strategy) for point in points] == [(case, ours) for case in CASES for ours in OURS]


def test_the_small_probes_gradients_fill_several_buckets():
    probe_bytes = 4 * 4 * (8 * 8 + 8)
    for plan in (Equality.small(device="cpu", gpus=2), Equality(device="cpu", gpus=2)):
        assert plan.points()[-1].bucket_mb * 2**20 < probe_bytes / 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda **more: All(strategies=("fast",), **more), "strategy='fast' is not known; it is one of none, naive"),
        (lambda **more: All(precision="int8", **more), "precision='int8'"),
        (lambda **more: All(heads=3, **more), "hidden=1600 does not divide into heads=3"),
        (lambda **more: All(hidden=60, heads=4, **more), "of an even width"),
        (lambda **more: All(samples=0, **more), "samples=0"),
        (lambda **more: Buckets(buckets_mb=(-1,), **more), "bucket_mb=-1"),
        (lambda **more: Equality(cases=("odd",), **more), "case='odd'"),
        (lambda **more: Equality(strategies=("ddp",), **more), "strategy='ddp' is not known; it is one of naive"),
        (lambda **more: Trial(variants=("odd",), **more), "variant='odd'"),
    ],
)
def test_contradictions(make, words):
    with pytest.raises(PlanError) as caught:
        make(device="cpu", gpus=2)
    assert words in str(caught.value)
