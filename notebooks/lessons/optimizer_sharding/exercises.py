"""The exercises of lab 11: a sharded step, a whole checkpoint from pieces, and the bug in a sharded optimizer."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from IPython.display import HTML

from labkit.course.exercises import CORE, STRETCH, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import listed
from lessons.optimizer_sharding.judged import judge_momentum, judge_zero, say_what_fits
from lessons.optimizer_sharding.plan import Equality, Exchanges
from lessons.optimizer_sharding.tables import equality, exchanges, faults, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run

SYMPTOMS = {
    "sends_nothing": "every rank updates its part and keeps it: replicas drift apart",
    "own_part": "the state_dict holds this rank's part; the rest of each moment is zero",
    "stale_rate": "the optimizers inside keep the learning rate that they were made with",
}


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms: a sentence a fault."""
    sentences = {
        "sends_nothing": f"replicas are {units.percent(row['drift'])} of a weight apart: updates are not sent",
        "stale_rate": f"the first step is right, and the last {units.percent(row['error'])} off: the rate fell, and "
        "the optimizers inside did not see it",
        "own_part": f"{units.percent(row['saved'])} of the numbers in its state_dict are right: the other ranks' "
        "part is not in it",
        "wrong": f"after one step a weight is {units.percent(row['first_error'])} off",
    }
    wrong = {kind: sentences[kind] for kind in faults(row)}
    return Verdict.of_faults(row["variant"], wrong, "values and state_dict are right")


PIECES = (
    ([4], [[[0, 0, 2, [1.0, 2.0]]], [[0, 2, 4, [3.0, 4.0]]]]),
    ([3, 2], [[[0, 0, 3, [1.0, 2.0, 3.0]]], [[1, 0, 2, [4.0, 5.0]]]]),
    ([2, 3], [[[1, 1, 3, [4.0, 5.0]]], [[0, 0, 2, [1.0, 2.0]], [1, 0, 1, [3.0]]]]),
    ([5], [[[0, 3, 5, [4.0, 5.0]]], [[0, 1, 3, [2.0, 3.0]]], [[0, 0, 1, [1.0]]]]),
    ([1, 1, 1], [[[2, 0, 1, [3.0]], [0, 0, 1, [1.0]]], [[1, 0, 1, [2.0]]], []]),
    (
        [1, 1, 1, 4],
        [
            *([[0, 0, 1, [1.0]]], [], [[2, 0, 1, [3.0]], [3, 3, 4, [7.0]], [3, 1, 3, [5.0, 6.0]]], []),
            *([[1, 0, 1, [2.0]]], [[3, 0, 1, [4.0]]]),
        ],
    ),
)  # elements of each parameter, and each rank's pieces: parameter, begin, end, values


def _gathered_parameters(sizes: list[int], parts: list[list], begins: bool = True) -> list[list[float]]:
    """Return the values of each parameter; without `begins`, as the ranks have them, one after another."""
    pieces = [piece for part in parts for piece in part]
    ordered = sorted(pieces, key=lambda piece: piece[1]) if begins else pieces
    return [[value for piece in ordered if piece[0] == number for value in piece[3]] for number in range(len(sizes))]


def _values_of_rank_0(sizes: list[int], parts: list[list]) -> list[list[float]]:
    whole = [[0.0] * size for size in sizes]
    for number, begin, end, values in parts[0]:
        whole[number][begin:end] = values
    return whole


def _pieces(random: Random) -> list:
    """Return parameters cut into pieces, and these dealt out to ranks in no order."""
    drawn = []
    for parameters, ranks in ((1, 2), (2, 3), (4, 5), (5, 8)):
        sizes, pieces = [random.randint(4, 8) for _ in range(parameters)], []
        for number, size in enumerate(sizes):
            values = [float(random.choice((-1, 1)) * random.randint(1, 9)) for _ in range(size)]
            cuts = sorted({0, size, *random.sample(range(1, size), 2)})
            pieces += [[number, begin, end, values[begin:end]] for begin, end in pairwise(cuts)]
        random.shuffle(pieces)
        drawn.append((sizes, [pieces[rank::ranks] for rank in range(ranks)]))
    return drawn


_GATHERED = compared(
    "gathered",
    _gathered_parameters,
    (
        Mistake(
            "own_part",
            _values_of_rank_0,
            "that is the part of rank 0 with zeros beside it; the other ranks have the rest",
        ),
        Mistake(
            "rank_order",
            lambda sizes, parts: _gathered_parameters(sizes, parts, begins=False),
            "ranks need not hold the pieces in order: `begin` says where a piece belongs",
        ),
        Mistake(
            "flat",
            lambda sizes, parts: [value for parameter in _gathered_parameters(sizes, parts) for value in parameter],
            "that is one list of all numbers; return one list per parameter",
        ),
        Mistake(
            "per_rank",
            lambda sizes, parts: [[value for piece in part for value in piece[3]] for part in parts],
            "that is one list per rank; return one list per parameter",
        ),
    ),
    result_form="a list of numbers for each parameter",
    rule="each piece belongs to its parameter, from element `begin` to `end`",
    merit="every rank's pieces are where they belong, so a checkpoint holds all of the state",
    inputs=PIECES,
    grade=WARM_UP,
    cases=Cases(_pieces),
    hints=(
        "Take `sizes = [4]`, the piece `(0, 0, 2, [1.0, 2.0])` on rank 0 and `(0, 2, 4, [3.0, 4.0])` on rank 1. "
        "Write down the whole moment by hand.",
        "`whole` already has a list of zeros for each parameter. Go through all pieces of all ranks, and write "
        "the values of each over its elements.",
        "`whole = [[0.0] * size for size in sizes]`. For each piece `(parameter, begin, end, values)`: "
        "`whole[parameter][begin:end] = values`.",
    ),
)


_WORKER = "lessons.optimizer_sharding.worker"
_TORCH_S = 40.0  # torch starts


def _tensors(random: Random) -> list:
    """Return ranks, numbers in each rank's part, steps and a seed."""
    return [(ranks, random.randint(1, 9), 3, random.randint(1, 10**6)) for ranks in (2, 3, 4)]


_MOMENTUM_STEP = Exercise(
    "momentum_step",
    judge=judge_momentum,
    on_failure=say_what_fits,
    grade=CORE,
    cases=Cases(
        _tensors,
        driver=f"{_WORKER}.tried_momentum",
        on_ranks=True,
        reference=(f"{_WORKER}.momentum.momentum_step",),
        may_import=(
            "labkit.worker.collectives",
            *(f"{_WORKER}.{name}" for name in ("momentum", "tried_momentum", "late")),
        ),
        start_s=_TORCH_S,
    ),
    solution=(f"{_WORKER}.momentum.momentum_step",),
    hints=(
        "What does each rank need of the gradient: all of the mean, or one part? Which collective gives just this?",
        "Cut the weight with `weight.chunk(ranks)`: part `rank` is a view, so changing it in place changes the weight. "
        "Make an empty tensor like it for the mean of this part. Divide by `ranks` before or after the sum.",
        "`dist.reduce_scatter_tensor(mean, gradient / ranks, group=group)`; `momentum = beta * momentum + mean`; "
        "`own -= rate * momentum`; `dist.all_gather_into_tensor(weight, own, group=group)`; return the momentum.",
    ),
)


def _models(random: Random) -> list:
    """Return ranks, elements of each parameter (in more than two buckets) and a seed."""
    return [
        (ranks, [random.randint(1, 9) for _ in range(random.randint(6, 9))], random.randint(1, 10**6))
        for ranks in (2, 3, 4)
    ]


def _launches(file: str, *, size: str = "small", gpus: int = 0) -> list[Equality | Exchanges]:
    equal = Equality.sized(size, gpus=gpus, seeds=1, ways=(), update_all=file)
    return [equal, Exchanges.sized(size, gpus=gpus, seeds=1, update_all=file)]


def judge_launch(run: Run) -> Verdict:
    """Return the verdict on an `update_all` that trained beside the optimizer that shards nothing, or was timed."""
    if isinstance(run.plan, Equality):
        table = equality(run)
        wrong = [f"{row.optimizer}, case `{row.case}`" for row in table[~table["equal"]].itertuples()]
        fault = f"weights differ from those of the optimizer that shards nothing: {listed(wrong)}"
        merit = f"ten steps in {len(table)} cases leave the weights of the optimizer that shards nothing"
        return Verdict.of_faults("update_all", {"unequal": fault} if wrong else {}, merit)
    table = exchanges(run).set_index("way")
    if (failed := table[table["status"] != "ok"]["status"]).size:
        return Verdict.of_faults("update_all", {"failed": f"on {run.plan.workers_text} it ends with {failed.iloc[0]}"})
    yours, reference, torchs = (
        units.seconds(table.loc[way, "ms"] / 1e3) for way in ("your_zero", "zero1", "zero_buckets")
    )
    times = f"{yours} with yours, {reference} with the reference solution, {torchs} with torch's optimizer"
    return Verdict.of_faults("update_all", {}, f"from gradients to weights on {run.plan.workers_text}: {times}")


_UPDATE_ALL = Exercise(
    "update_all",
    judge=judge_zero,
    on_failure=say_what_fits,
    grade=STRETCH,
    cases=Cases(
        _models,
        driver=f"{_WORKER}.tried_zero",
        on_ranks=True,
        reference=(f"{_WORKER}.zero.ZeroOptimizer.update_all",),
        may_import=(
            *("labkit.theory.sizes", "labkit.worker.collectives"),
            *(f"{_WORKER}.{name}" for name in ("late", "sharded", "states", "tried_zero", "zero")),
        ),
        start_s=_TORCH_S,
    ),
    trial=Trial(_launches, judge_launch),
    solution=(f"{_WORKER}.zero.ZeroOptimizer.update_all",),
    hints=(
        "`ShardedOptimizer.update_all` has the loop. What comes before the update of a bucket, and which length does "
        "the result have?",
        "For each bucket: divide the flat gradient by `self.ranks`, reduce-scatter it into an empty tensor of "
        "`bucket.end - bucket.begin` numbers, update the part, start the gather. After the loop, wait for all gathers.",
        "`mean = bucket.flat.new_empty(bucket.end - bucket.begin)`; `dist.reduce_scatter_tensor(mean, "
        "self.flat_gradient(bucket) / self.ranks, group=self.process_group)`; `self.update_part(bucket, mean)`; "
        "`sent.append(self.send(bucket, bucket.flat))`.",
    ),
)

check = Exercises("optimizer_sharding", _MOMENTUM_STEP, _UPDATE_ALL, _GATHERED)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

_RIGHT = """
class Sharded:
    def __init__(self, parameters, kind, **options):
        numbers = flat(parameters)
        self.parts = equal_parts(numbers, ranks)
        self.inner = kind(self.parts[rank], **options)

    def step(self):
        groups = zip(self.inner.groups, self.groups)
        for inside, outside in groups:
            inside["lr"] = outside["lr"]
        self.inner.step()
        for owner, part in enumerate(self.parts):
            broadcast(part, src=owner)

    def state_dict(self):
        states = all_gather(self.inner.state_dict())
        return joined(states)
"""
_CODES = with_bugs(
    _RIGHT,
    {
        "sends_nothing": [
            ("        for owner, part in enumerate(self.parts):\n            broadcast(part, src=owner)\n", "")
        ],
        "own_part": [("all_gather(self.inner.state_dict())", "[self.inner.state_dict()]")],
        "stale_rate": [
            (
                "        groups = zip(self.inner.groups, self.groups)\n"
                '        for inside, outside in groups:\n            inside["lr"] = outside["lr"]\n',
                "",
            )
        ],
    },
)
suspects, diagnose, show_suspects = line_up("optimizer_sharding", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_shorter() -> HTML:
    """Ask why a sharded update can be shorter although it sends all parameters."""
    return why(
        "A sharded update sends 4 GB more through each link. Why can it still be shorter?",
        (
            "Each rank updates half the elements",
            "Many kernels move 80 bytes per element through memory, and only 4 are sent.",
        ),
        ("NVLink is faster than the GPU's memory", "No: 478 GB/s against 4 800 GB/s on an H200."),
        ("The gradients are sent only once", "They are all-reduced as before. Only the update is shared out."),
    )
