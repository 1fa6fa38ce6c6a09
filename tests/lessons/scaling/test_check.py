"""The check of lab 13: a student's `shard` feeds a training, and a wrong one shows there, too."""

import pytest
from slips import slipped, solution

from labkit.course import answers
from labkit.course.verdict import HUNG, RAISED, RIGHT, WRONG, Verdict
from labkit.launching import launch
from lessons import scaling
from lessons.scaling.plan import Accuracy

pytestmark = pytest.mark.usefixtures("elsewhere")


def checked(text: str) -> Verdict:
    answers.save("scaling.shard", text)
    return scaling.check("shard", size="small", gpus=2)


def test_a_right_shard_feeds_a_training_beside_torchs_sampler():
    verdict = checked(solution("scaling.shard"))
    assert verdict.outcome == RIGHT, verdict
    assert "in 3 trainings on 2 CPU processes, each epoch has all 767 images, 1 of them twice" in verdict.merits[1]
    assert "% with torch's sampler" in verdict.merits[2]
    run = launch(Accuracy.small(gpus=2, seeds=(0,), trainings=("large",), yours=scaling.yours("shard")), progress=False)
    table = scaling.accuracy(run)
    assert table["variant"].tolist() == ["large", "yours"] and (table["test_percent"] > 20).all(), table
    assert table["steps"].nunique() == 1
    scaling.accuracy_chart(table)
    scaling.trained_alike(table)


WRONG_ONES = {  # what replaces what in the reference solution: the judge's kind, and what the training shows
    "all ranks the same images": (
        "order[rank::ranks]",
        "order[::ranks]",
        "coverage",
        "epoch 0 has only 384 of 767 images",
    ),
    "no reshuffle": ("random.Random(epoch)", "random.Random(0)", "reshuffle", "epoch 1 has the order of the epoch"),
    "an order per rank": ("random.Random(epoch)", "random.Random(rank)", "coverage", "epoch 0 has only"),
    "all images on each rank": ("order[rank::ranks]", "order", "count", "take 1536 images in epoch 0, 2.0× as many"),
    "always cut": ("if drop_last", "if True", "count", "epoch 0 has only 766 of 767 images"),
    "blocks": (
        "order[rank::ranks]",
        "order[rank * len(order) // ranks :][: len(order) // ranks]",
        "order",
        "",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_ONES)
def test_a_wrong_shard_shows_in_a_training(name):
    old, new, kind, shown = WRONG_ONES[name]
    verdict = checked(slipped("scaling.shard", old, new))
    assert verdict.outcome == WRONG and kind in verdict.faults, verdict
    said = verdict.faults["training"] if shown else verdict.merits[1]
    assert shown in said and "of the test images are right after training" in said, verdict
    assert scaling.yours("shard") == ""


@pytest.mark.parametrize(
    ("old", "new", "outcome", "kind"),
    [
        ("order = (order * ranks)[:filled]", "pass", WRONG, "uneven"),
        ("order[rank::ranks]", "tuple(map(str, order[rank::ranks]))", WRONG, "form"),
        ("return order", "return [number + 1 for number in order]", WRONG, "outside"),
        ("order[rank::ranks]", "sum(order[rank::ranks])", WRONG, "form"),
        ("order[rank::ranks]", "orders[rank::ranks]", RAISED, "raised"),
    ],
)
def test_what_cannot_feed_a_training_is_not_trained_with(old, new, outcome, kind, monkeypatch):
    monkeypatch.setattr(scaling.check, "_verdict_of_trial", lambda *_: pytest.fail("a training"))
    verdict = checked(slipped("scaling.shard", old, new))
    assert verdict.outcome == outcome and kind in verdict.faults, verdict


def test_a_shard_that_waits_is_told():
    answers.save(
        "scaling.shard", solution("scaling.shard").replace("order = list", "while True: pass\n    order = list")
    )
    verdict = scaling.check("shard", size="small", gpus=2, patience_s=3)
    assert verdict.outcome == HUNG, verdict


def test_on_one_gpu_it_feeds_the_same_batch():
    answers.save("scaling.shard", solution("scaling.shard"))
    (plan,) = scaling.check.by_name["shard"].trial.plans("answer.py", size="small", gpus=1)
    assert [(point.variant, point.ranks, point.batch) for point in plan.points() if not point.seed] == [
        ("one_gpu", 1, 16),
        ("yours", 1, 16),
    ]
