"""Lab 03's plans check themselves before anything starts, and say what is allowed."""

import pytest

from labkit.engine.errors import PlanError
from labkit.engine.plan import Plan
from lessons import pipeline
from lessons.pipeline.exercises import SYMPTOMS
from lessons.pipeline.plan import BY_HAND, VARIANTS, BertPlan
from lessons.pipeline.worker.trials import BUGS

FOUR = {"device": "cuda", "gpus": 4}


@pytest.mark.parametrize(
    ("kind", "knobs", "says"),
    [
        (pipeline.Splits, {"splits": ("3-3-3-2",)}, "has 11 layers; this model has 12"),
        (pipeline.Splits, {"splits": ("2-2-2-2",)}, "has 8 layers; this model has 12"),
        (pipeline.Splits, {"splits": ("6-6-0-0",)}, "stage 2 is empty; every stage needs a layer"),
        (pipeline.Splits, {"splits": ("3-3-2-2-2",)}, "wants 5 GPUs side by side; this plan has 4"),
        (pipeline.Splits, {"splits": ("three",)}, "say the layers of each stage, such as '3-3-3-3'"),
        (pipeline.Gpus, {"ranks": (5,)}, "12 layers do not divide into 5 equal stages; 1, 2, 3, 4, 6, 12 stages do"),
        (pipeline.Gpus, {"ranks": (6,)}, "wants 6 GPUs side by side; this plan has 4"),
        (pipeline.Gpus, {"modes": ("backward",)}, "mode='backward' is not known; it is one of streaming,"),
        (pipeline.MicroBatches, {"counts": (5,)}, "do not divide the batch of 64; these do: 1, 2, 4, 8, 16, 32, 64"),
        (pipeline.MicroBatches, {"counts": (0,)}, "micro_batches=0 do not divide"),
        (pipeline.Schedules, {"chunks": 2}, "12 layers do not divide into 8 equal stages"),
        (pipeline.Schedules, {"counts": (2,)}, "1F1B needs at least one per rank, 4"),
        (pipeline.Schedules, {"schedules": ("dualpipe",)}, "schedule='dualpipe' is not known"),
        (
            pipeline.Schedules,
            {"batch": 60, "counts": (10,), "schedules": ("interleaved",), "gpus": 3},
            "interleaved takes them in equal rounds of about 3",
        ),
        (pipeline.Gpus, {"precision": "float8"}, "precision='float8' is not known"),
        (pipeline.Gpus, {"hidden": 100}, "hidden=100 does not divide into heads=12"),
        (pipeline.Gpus, {"repeats": 0}, "at least 1 each"),
        (pipeline.Trial, {"variants": ("wrong",)}, "variant='wrong' is not known"),
        (pipeline.Trial, {"splits": ("1-1-1-3-3-3",), "gpus": 6, "layers": 13}, "this model has 13"),
    ],
)
def test_bad_input_says_what_is_allowed(kind, knobs, says):
    with pytest.raises(PlanError, match=says.replace("(", r"\(").replace(")", r"\)")):
        kind(**FOUR | knobs)


def test_more_stages_than_gpus_only_interleaved():
    plan = pipeline.Schedules(**FOUR)
    setting = plan.setting(split="2-1-2-1-2-1-2-1", schedule="gpipe")
    with pytest.raises(PlanError, match="8 stages are more than 4 GPUs; only 'interleaved'"):
        plan.require_point(setting)


@pytest.mark.parametrize("gpus", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("kind", BertPlan.__subclasses__())
def test_defaults_fit_any_number_of_gpus(kind, gpus):
    plan = kind(device="cuda", gpus=gpus)
    assert plan.points()
    assert Plan.from_json(plan.to_json()) == plan
    assert max((point.ranks for point in plan.points() if hasattr(point, "ranks")), default=1) <= gpus


def test_full_is_the_reports_size():
    plan = pipeline.Gpus.full(**FOUR)
    assert (plan.batch, plan.sequence, plan.layers, plan.hidden) == (64, 512, 12, 768)
    assert (plan.precision, plan.seeds) == ("float32", (0, 1, 2))
    assert {(point.ranks, point.micro_batches) for point in plan.points()} == {(2, 4), (3, 4), (4, 4)}


def test_the_plan_knows_every_bug():
    assert set(VARIANTS) - {BY_HAND} == {"right", *SYMPTOMS} == set(BUGS)
