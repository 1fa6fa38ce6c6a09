"""The exercises of lab 13: a sampler, which also feeds a training, and learning rates; then the bugs to name."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial
from labkit.course.judging import is_close, is_number, not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.scaling.plan import Accuracy
from lessons.scaling.tables import symptoms
from lessons.scaling.theory import YOURS, learning_rate, scaled_rate

if TYPE_CHECKING:
    import pandas as pd

    from labkit.engine.run import Run

_CLOSE = 1e-6


def shards_of(sizes: Iterable[tuple[int, int, bool]], epochs: Sequence[int] = (0, 1)) -> list[list]:
    """Return images, ranks, rank, epoch and drop_last of every call: each rank of each size, in each epoch."""
    return [
        [images, ranks, rank, epoch, drop_last]
        for images, ranks, drop_last in sizes
        for epoch in epochs
        for rank in range(ranks)
    ]


def _sizes(random: Random) -> list:
    """Return the calls for sizes that the ranks divide, that they do not, and with fewer images than ranks, in four
    epochs, with and without `drop_last`.
    """
    sizes = []
    for drop_last in (False, True):
        ranks = random.randint(3, 6)
        whole = ranks * random.randint(4, 10)
        sizes += [(whole, ranks, drop_last), (whole + random.randint(1, ranks - 1), ranks, drop_last)]
        sizes.append((2, random.randint(5, 7), drop_last))
    return shards_of(sizes, (0, 1, random.randint(2, 9), random.randint(10, 99)))


def _schedules(random: Random) -> list:
    """Return calls of `rates`: steps, warm-up steps, batch, base batch and base rate; one is without warm-up.

    Batches are smaller than the base batch, as large, and larger, also by no whole number of times.
    """
    drawn = []
    for times, rate, least in ((1.5, 0.05, 0), (0.5, 0.1, 1), (1, 0.05, 1), (2, 0.1, 1), (8, 0.05, 1)):
        steps, base = random.randint(5, 60) if times < 8 else random.randint(60, 90), random.choice((64, 128))
        warm_up = random.randint(1, steps - 1) if least else 0
        drawn.append((steps, warm_up, int(times * base), base, rate))
    return drawn


def judge_shard(given: list, shards: Sequence[Sequence]) -> Verdict:
    """Return the verdict on the lists of image numbers of all ranks, for each size and epoch."""
    faults: dict[str, str] = {}
    groups: dict[tuple, dict[int, list]] = {}
    for (images, ranks, rank, epoch, drop_last), numbers in zip(shards, given, strict=True):
        groups.setdefault((images, ranks, drop_last, epoch), {})[rank] = numbers
    for (images, ranks, drop_last, epoch), by_rank in groups.items():
        where = f"for {images} images on {ranks} ranks{', drop_last' if drop_last else ''}, epoch {epoch}"
        if (
            fault := _form_fault(by_rank, images)
            or _count_fault(by_rank, images, ranks, drop_last)
            or _coverage_fault(by_rank, images, drop_last)
        ):
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
        elif epoch and by_rank == groups[images, ranks, drop_last, 0] and images > 3:
            question = (
                f"for {images} images on {ranks} ranks, epochs 0 and {epoch} have the same order: is the epoch the "
                "seed?"
            )
            faults.setdefault("reshuffle", question)
        elif fault := _order_fault(by_rank, images, ranks, epoch, drop_last):
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    merit = "each epoch has an order of its own, and the ranks share it evenly, without gaps"
    return Verdict.of_faults("shard", faults, merit)


def _form_fault(shards: dict[int, Any], images: int) -> tuple[str, str] | None:
    for numbers in shards.values():
        if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
            return "form", f"it gives {not_the_form(numbers, 'a list of whole numbers')}"
        if outside := [number for number in numbers if not 0 <= number < images]:
            return "outside", f"it gives {outside[0]}: there are images 0 to {images - 1}"
    return None


def _count_fault(shards: dict[int, list], images: int, ranks: int, drop_last: bool) -> tuple[str, str] | None:
    due, lengths = (
        images // ranks if drop_last else math.ceil(images / ranks),
        [len(shard) for shard in shards.values()],
    )
    if len({*lengths}) > 1:
        return (
            "uneven",
            f"the ranks have {lengths} images: a rank with more than the others would wait forever for their gradients",
        )
    if lengths[0] != due:
        return "count", f"each rank has {lengths[0]} images, not {due}"
    return None


def _coverage_fault(shards: dict[int, list], images: int, drop_last: bool) -> tuple[str, str] | None:
    times = Counter(number for numbers in shards.values() for number in numbers)
    if drop_last and max(times.values(), default=1) > 1:
        return (
            "twice",
            f"image {times.most_common(1)[0][0]} is in the lists {times.most_common(1)[0][1]} times, not once",
        )
    if not drop_last and (missing := images - len(times)):
        return "coverage", f"{missing} images are in no rank's list: do all ranks shuffle alike?"
    most = math.ceil(sum(times.values()) / images)
    if times and max(times.values()) > most:
        return (
            "twice",
            f"image {times.most_common(1)[0][0]} is in the lists {max(times.values())} "
            f"times, and {most} at most are needed",
        )
    return None


def _order_fault(
    shards: dict[int, list], images: int, ranks: int, epoch: int, drop_last: bool
) -> tuple[str, str] | None:
    order = list(range(images))
    random.Random(epoch).shuffle(order)
    length = images - images % ranks if drop_last else math.ceil(images / ranks) * ranks
    due = [order[place % images] for place in range(length)]
    wrong = [rank for rank, numbers in shards.items() if numbers != due[rank::ranks]]
    if not wrong:
        return None
    given = shards[wrong[0]]
    if all(sorted(numbers) == sorted(due[rank::ranks]) for rank, numbers in shards.items()):
        why = "the numbers are this rank's, in another order than the shuffled one"
    elif given == list(range(images))[wrong[0] :: ranks]:
        why = "that is the order before it is shuffled, and every epoch is shuffled, the first one, too"
    elif given == due[wrong[0] * len(given) :][: len(given)]:
        why = "that is a block of the order; a rank takes every `ranks`-th number"
    else:
        why = "shuffle with `random.Random(epoch).shuffle`; cut or fill at the end of the order, then deal it out"
    return "order", f"rank {wrong[0]} gets {given!r:.60}: {why}"


def _trainings_to_try(file: str, *, size: str = "small", gpus: int = 0) -> list[Accuracy]:
    plan = Accuracy.sized(size, gpus=gpus, yours=file)
    return [replace(plan, trainings=("large" if plan.gpus > 1 else "one_gpu",))]


def judge_training(run: Run) -> Verdict:
    """Return the verdict on the images that an Accuracy run took by a student's `shard`, with what it learnt of them.

    Beside it: what the same training learnt by torch's sampler.
    """
    rows, images, ranks = run.entries("training"), run.plan.training, run.plan.gpus
    last = rows[rows["epoch"] == rows["epoch"].max()]
    is_yours = last["variant"] == YOURS
    yours, torchs = (_range(last.loc[which, "test_percent"]) for which in (is_yours, ~is_yours))
    more = last.loc[is_yours, "dealt"].max() / (math.ceil(images / ranks) * ranks)
    longer = f" with {units.times(more)} as many images per epoch" if more > 1 else ""
    learnt = f"{yours} of the test images are right after training{longer}, and {torchs} with torch's sampler"
    where = f"in {is_yours.sum()} trainings on {run.plan.workers_text}"
    if fault := _dealt_fault(rows[rows["variant"] == YOURS], images, ranks):
        return Verdict.of_faults("shard", {"training": f"{where}, {fault}; {learnt}"})
    filled = f", {-images % ranks} of them twice" if images % ranks else ""
    return Verdict.of_faults(
        "shard", {}, f"{where}, each epoch has all {images} images{filled}, in a new order", learnt
    )


def _dealt_fault(epochs: pd.DataFrame, images: int, ranks: int) -> str:
    """Return what is wrong with the images of the first epoch that has a fault; "" where none has."""
    due = math.ceil(images / ranks) * ranks
    for row in epochs.itertuples():
        if row.seen < images:
            return f"epoch {row.epoch} has only {row.seen:.0f} of {images} images"
        if row.dealt != due:
            times = units.times(row.dealt / due)
            return f"all ranks together take {row.dealt:.0f} images in epoch {row.epoch}, {times} as many as it needs"
        if row.repeated > 0.5:
            return f"epoch {row.epoch} has the order of the epoch before"
    return ""


def _range(percents: pd.Series) -> str:
    least, most = percents.min().round(), percents.max().round()
    return f"{least:.0f} to {most:.0f} %" if least < most else f"{most:.0f} %"


def judge_rates(given: list, schedules: Sequence[Sequence]) -> Verdict:
    """Return the verdict on the learning rates of every step, for several batches and warm-ups."""
    faults: dict[str, str] = {}
    for (steps, warm_up_steps, batch, base_batch, base_rate), rates in zip(schedules, given, strict=True):
        where = (
            f"for {steps} steps, {warm_up_steps} of warm-up, batch {batch} (batch {base_batch} has rate {base_rate:g})"
        )
        peak = scaled_rate(batch, base_rate, base_batch)
        due = [learning_rate(step, steps, warm_up_steps, peak) for step in range(steps)]
        if fault := _rates_fault(rates, due, peak, base_rate, warm_up_steps):
            faults.setdefault(fault[0], f"{where}, {fault[1]}")
    return Verdict.of_faults("rates", faults, "the rate follows the batch, climbs in a line and falls in a line")


def _rates_fault(
    rates: Any, due: list[float], peak: float, base_rate: float, warm_up_steps: int
) -> tuple[str, str] | None:
    numbers = isinstance(rates, list) and all(map(is_number, rates))
    if not numbers or len(rates) != len(due):
        return "form", f"it gives {not_the_form(rates, f'a list of {len(due)} numbers')}"
    if not is_close(max(rates), max(due), absolute=_CLOSE):
        why = "the last step of the warm-up has the highest rate, or step 0 if there is no warm-up"
        if is_close(max(rates), base_rate, absolute=_CLOSE):
            why = "scale the base rate with the batch"
        return "peak", f"the highest rate is {units.number(max(rates))}, not {units.number(max(due))}: {why}"
    wrong = [
        step
        for step, (rate, right) in enumerate(zip(rates, due, strict=True))
        if not is_close(rate, right, absolute=_CLOSE)
    ]
    if not wrong:
        return None
    step = wrong[0]
    part = "warm_up" if step < warm_up_steps else "decay"
    return (
        part,
        f"step {step} has rate {units.number(rates[step])}, not {units.number(due[step])}; "
        f"the peak is {units.number(peak)}",
    )


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms."""
    faults: dict[str, str] = {}
    if row["distinct"] < 1:
        faults["no_sampler"] = (
            f"only {units.percent(row['distinct'])} of the images in an epoch differ: each rank trains on all of them"
        )
    if row["repeated"] > 0.5:
        faults["no_set_epoch"] = "the second epoch has the first one's order"
    if row["validated"] < 1:
        faults["one_shard"] = f"its accuracy is that of {units.percent(row['validated'])} of the test images"
    merit = "images and validation are as they should be"
    return Verdict.of_faults(row["variant"], faults, merit)


check = Exercises(
    "scaling",
    Exercise(
        "shard",
        judge=judge_shard,
        trial=Trial(_trainings_to_try, judge_training, also_after=("reshuffle", "count", "coverage", "twice", "order")),
        cases=Cases(_sizes),
        grade=CORE,
        hints=(
            "Which part must be the same on all ranks, and which differs? Try 10 images on 4 ranks by hand.",
            "Shuffle with a generator that only the epoch seeds. Make the length divisible by the ranks: cut, or "
            "append numbers from its start, one by one (begin again if it is used up). Then take every `ranks`-th"
            " number.",
            "`random.Random(epoch).shuffle(order)`. With `drop_last`: `order[: images - images % ranks]`. Without: "
            "`filled = -(-images // ranks) * ranks`, then `(order * ranks)[:filled]`. Return `order[rank::ranks]`.",
        ),
    ),
    Exercise(
        "rates",
        judge=judge_rates,
        cases=Cases(_schedules),
        grade=WARM_UP,
        hints=(
            "What is the highest rate? The base rate belongs to the base batch.",
            "The peak is the base rate times batch over base batch. Step k of the warm-up has (k + 1) parts of it. "
            "After that, step k has (steps − k) of (steps − warm_up_steps) parts.",
            "`peak = base_rate * batch / base_batch`. Two lists: `peak * (k + 1) / warm_up_steps` for the first "
            "`warm_up_steps`, and `peak * (steps - k) / (steps - warm_up_steps)` for the rest.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

_RIGHT = """
sampler = DistributedSampler(
    images, num_replicas=ranks, rank=rank)
rate = base_rate * batch / base_batch
for epoch in range(epochs):
    sampler.set_epoch(epoch)
    train(model, sampler, peak_rate=rate)

mine = test_images[rank::ranks]
right, tested = evaluate(model, mine), len(mine)
right, tested = all_reduce([right, tested])
accuracy = right / tested
"""
# What each bug shows, and the check that names it; worker/trials.py has the bugs.
SYMPTOMS = {
    "no_sampler": "every rank trains on all images: N GPUs do N times the work",
    "no_set_epoch": "every epoch brings the images in the same order",
    "one_shard": "the accuracy is that of one rank's part of the test images",
}
CODES = with_bugs(
    _RIGHT,
    {
        "no_sampler": [("num_replicas=ranks, rank=rank", "num_replicas=1, rank=0")],
        "no_set_epoch": [("    sampler.set_epoch(epoch)\n", "")],
        "one_shard": [("right, tested = all_reduce([right, tested])\n", "")],
    },
)


suspects, diagnose, show_suspects = line_up("scaling", SYMPTOMS, symptoms, verdict_of, CODES)


def why_the_batch(parts: pd.DataFrame) -> HTML:
    """Ask why two GPUs keep less of their rate with few images each; takes the recorded `parts`."""
    rows = parts[parts["loader"] == "device"].set_index(["ranks", "gpu_batch"])
    step_ms = 1e3 * rows["seconds"] / rows["steps"]
    added_ms = [units.number(step_ms[2, batch] - step_ms[1, batch], 2) for batch in (32, 512)]
    return why(
        "With 32 images per GPU, two GPUs keep much less of their rate than with 512. Why?",
        (
            "What DDP costs is a large part of a short step",
            f"Two GPUs add {added_ms[0]} ms to a step of 32 images, and {added_ms[1]} ms to a step of 512, which takes "
            f"{units.times(step_ms[1, 512] / step_ms[1, 32])} as long.",
        ),
        (
            "A smaller batch sends more gradients",
            "It sends the same bytes per step. A batch does not change the model.",
        ),
        (
            "Small images load more slowly",
            "They are the same images; getting them is a small part, as a chart below shows.",
        ),
    )
