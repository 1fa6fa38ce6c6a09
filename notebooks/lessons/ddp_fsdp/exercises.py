"""The exercises of lab 04: a sharded layer, bytes sent, DDP's buckets, and the bug in a training beside one process."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import HTML

from labkit.course.answer_launch import call_text
from labkit.course.exercises import CORE, STRETCH, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.exercises import Trial as Launches
from labkit.course.judging import Mistake, float32_mistakes, not_the_form
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.story.words import listed
from labkit.theory.sizes import MIB
from lessons.ddp_fsdp.plan import LAYER_FUNCTIONS, YOURS, Layers
from lessons.ddp_fsdp.tables import symptoms
from lessons.ddp_fsdp.theory import layer_faults

if TYPE_CHECKING:
    from labkit.engine.run import Run


def _layers(file: str, *, size: str = "small", gpus: int = 0) -> list[Layers]:
    return [Layers.sized(size, gpus=gpus, seeds=1, files=(file,))]


def judge_layers(run: Run, file: str = "") -> Verdict:
    """Return the verdict on the layers of a file, the plan's first if none is named: watched on each number of ranks.

    A right answer's merits are what it does, and its time beside the reference solution's and torch's.
    """
    watched = run.rows[run.rows["file"].eq(file or run.plan.files[0]) & run.rows["entry"].eq("layers")]
    right_on: list[int] = []
    for ranks, rows in watched.groupby("ranks"):
        faults: dict[str, str] = {}
        for row in rows.to_dict("records"):
            notes = {str(name): value for name, value in row.items() if value == value}
            faults = layer_faults(notes) | faults
        if faults and right_on:
            wrong = f"it is right on {right_on[-1]} ranks, and wrong on {ranks}: {next(iter(faults.values()))}"
            faults = {"number_of_ranks": wrong}
        if faults:
            return Verdict.of_faults("sharded_layer", faults)
        right_on.append(ranks)
    merits = [
        f"on {listed(right_on)} ranks the weights and losses are those of one process",
        "a step sends as few bytes as a ring can, and outside of a layer's computation its whole weights are gone",
    ]
    steps = run.medians(["variant", "file"], "step_ms").set_index(["variant", "file"])["step_ms"]
    yours, own, torchs = (
        units.seconds(steps[variant] / 1e3)
        for variant in ((YOURS, file or run.plan.files[0]), ("own_shards", ""), ("right", ""))
    )
    time = f"a step takes {yours} with your layers, {own} with the reference solution's and {torchs} with torch's"
    return Verdict.of_faults("sharded_layer", {}, *merits, f"{time} `fully_shard` ({run.plan.workers_text})")


def _models(random: Random) -> list:
    """Return bytes of each gradient in the order of the parameters, the first bucket's cap, every other's."""
    edges = [
        ([MIB] * 4, MIB, 2 * MIB),
        ([5, 5, 5], 100, 100),
        ([30 * MIB, MIB, MIB, 2 * MIB, 24 * MIB, 1], MIB, 25 * MIB),
        ([89 * MIB, *[2 * MIB, 1024] * 20, 3 * MIB], MIB, 25 * MIB),
    ]
    caps = random.sample(range(4, 30), 4)
    edges.append(([random.randint(8, 40) * MIB // 4 for _ in range(random.randint(6, 9))], MIB, 2 * MIB))  # one each
    return edges + [
        ([random.randint(1, 40) * MIB // 4 for _ in range(random.randint(3, 12))], MIB, cap * MIB) for cap in caps
    ]


def judge(given: list, models: Sequence[tuple[list[int], int, int]]) -> Verdict:
    """Return the verdict on buckets: for each model a list of lists of parameter numbers."""
    faults: dict[str, str] = {}
    for (sizes, first, cap), filled in zip(models, given, strict=True):
        fault = (
            _form_fault(filled)
            or _missing_fault(filled, sizes)
            or _order_fault(filled)
            or _cap_fault(filled, sizes, first, cap)
        )
        if fault:
            faults.setdefault(fault[0], f"for {call_text('buckets', [sizes, first, cap])}, {fault[1]}")
    merit = "every gradient is in one bucket, the last first, and a bucket is closed when it holds its cap"
    return Verdict.of_faults("buckets", faults, merit)


def _form_fault(filled: Any) -> tuple[str, str] | None:
    lists = isinstance(filled, list) and all(isinstance(bucket, list) for bucket in filled)
    if not lists or not all(type(number) is int for bucket in filled for number in bucket):
        return "form", f"it gives {not_the_form(filled, 'a list of lists of whole numbers')}"
    return None


def _missing_fault(filled: list[list[int]], sizes: list[int]) -> tuple[str, str] | None:
    taken = sorted(number for bucket in filled for number in bucket)
    if taken != list(range(len(sizes))):
        return (
            "missing",
            f"the buckets hold {_brief(taken)}; they should hold each number from 0 to {len(sizes) - 1} once",
        )
    return ("empty", "one of the buckets is empty: there is nothing to send in it") if not all(filled) else None


def _brief(numbers: list[int]) -> str:
    return f"{numbers[:8]}{'…' if len(numbers) > 8 else ''}" if numbers else "no number"


def _order_fault(filled: list[list[int]]) -> tuple[str, str] | None:
    taken = [number for bucket in filled for number in bucket]
    if taken != sorted(taken, reverse=True):
        return "order", f"the numbers begin with {taken[:4]}; backward makes the gradient of the last parameter first"
    return None


def _cap_fault(filled: list[list[int]], sizes: list[int], first: int, cap: int) -> tuple[str, str] | None:
    for number, bucket in enumerate(filled):
        room, held = cap if number else first, [sizes[i] for i in bucket]
        if sum(held[:-1]) >= room:
            return (
                "late",
                f"bucket {number} held {units.size(sum(held[:-1]))}, at least its cap, and still got one more gradient",
            )
        if sum(held) < room and number < len(filled) - 1:
            return (
                "early",
                f"bucket {number} is closed when it holds {units.size(sum(held))}; its cap is {units.size(room)}",
            )
    return None


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms."""
    faults, ranks = {}, row["ranks"]
    if row["raised"]:
        faults["unused_parameter"] = f'it raises "{row["raised"]}": some parameter never got a gradient to send'
    elif row["distinct"] < 1:
        faults["no_sampler"] = (
            f"only {units.percent(row['distinct'])} of a batch's samples differ: every rank draws the same ones"
        )
    elif abs(row["update_ratio"] - ranks) < 0.05 * ranks:
        faults["summed"] = f"the first update is {units.number(row['update_ratio'])}× the right one, as many as ranks"
    elif row["repeated"] > 0.9:
        faults["no_set_epoch"] = "the second epoch begins with the first one's samples, in the same order"
    elif row["update_error"] > 1e-3:
        faults["wrong"] = "the weights do not change as in one process"
    return Verdict.of_faults(row["variant"], faults, "samples, losses and updates are one process's")


def _trainings(random: Random) -> list:
    """Return strategy, parameters and ranks; one rank sends nothing."""
    strategies = ("ddp", "fsdp_full", "fsdp_grad")
    drawn = [(strategy, random.randint(10**3, 10**9), random.randint(2, 16)) for strategy in strategies * 2]
    return [*[(strategy, 109_482_240, 4) for strategy in strategies], ("fsdp_full", 5000, 1), *drawn]


_PASSES = {"ddp": 2, "fsdp_full": 3, "fsdp_grad": 2}  # a reduce-scatter or an all-gather of everything is one


def _sent(strategy: str, parameters: int, ranks: int, passes: dict[str, int] = _PASSES) -> float:
    return passes[strategy] * (ranks - 1) / ranks * 4 * parameters


_SENT_BYTES = compared(
    "sent_bytes",
    _sent,
    (
        Mistake(
            "whole",
            lambda s, p, n: _PASSES[s] * 4 * p,
            "that is all the bytes; in a ring each rank keeps one of N parts and does not send it",
        ),
        *float32_mistakes(_sent, "for every strategy"),
        Mistake("together", lambda s, p, n: _sent(s, p, n) * n, "that is what all ranks send together"),
        Mistake(
            "one_pass",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"ddp": 1}),
            "an all-reduce is a reduce-scatter and then an all-gather: two passes",
        ),
        Mistake(
            "gathered_once",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_full": 2}),
            "full sharding gathers the parameters again in backward: two all-gathers and a reduce-scatter",
        ),
        Mistake(
            "no_gather",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_grad": 1}),
            "each rank updates its part alone, so the parameters have to be gathered in the next forward",
        ),
        Mistake(
            "gathered_twice",
            lambda s, p, n: _sent(s, p, n, _PASSES | {"fsdp_grad": 3}),
            "gradient-only sharding keeps the gathered parameters for backward: one all-gather",
        ),
    ),
    result_form="a number of bytes",
    rule="count the all-gathers and reduce-scatters of this strategy, and the bytes that one rank sends in each",
    merit="DDP and gradient-only sharding send the same, and full sharding half as much again",
    grade=WARM_UP,
    cases=Cases(_trainings),
    hints=(
        'List the collectives of a step for each strategy. The table under "What is sent" has them.',
        "An all-reduce is a reduce-scatter and an all-gather. Each of these two sends (N − 1)/N of all bytes. "
        "Count how many of them each strategy makes: for the gradients, and for the parameters in forward and "
        "backward.",
        "Count 2 for `ddp` and `fsdp_grad`, 3 for `fsdp_full`. Multiply by `(ranks - 1) / ranks * 4 * parameters`.",
    ),
)

_WORKER = "lessons.ddp_fsdp.worker"
_REFERENCE = tuple(f"{_WORKER}.sharded_layer.ShardedLayer.{name}" for name in LAYER_FUNCTIONS)


def _stacks(random: Random) -> list[tuple[int, int, int, int]]:
    """Return ranks, width, layers and a seed; not all ranks divide a layer's weights."""
    return [(ranks, random.randint(3, 9), random.randint(2, 3), random.randint(1, 10**6)) for ranks in (2, 3, 4)]


def judge_on_ranks(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on what `tried.drive` tells of each rank, `due` being the same of the reference solution.

    Gradients and weights are compared here: the notes say what is behind a difference.
    """
    for (ranks, *_), mine, right in zip(inputs, given, due, strict=True):
        faults: dict[str, str] = {}
        for rank, (told, expected) in enumerate(zip(mine, right, strict=True)):
            first = {"update_error": 0.0, "loss_error": 0.0, "gradient_ratio": 1.0, "ranks": ranks}
            faults = layer_faults(first | told["notes"] | {"ranks": ranks}) | faults
            same = all(_is_near(told[name], expected[name]) for name in ("gradients", "shards"))
            if not faults and not same:
                faults["wrong"] = f"gradients or weights of rank {rank} are not those of one process"
        if faults:
            where = {kind: f"with {ranks} ranks, {sentence}" for kind, sentence in faults.items()}
            return Verdict.of_faults("sharded_layer", where)
    merit = "on 2, 3 and 4 ranks gradients and weights are those of one process, and nothing whole is kept"
    return Verdict.of_faults("sharded_layer", {}, merit)


def _is_near(given: list, right: list) -> bool:
    mine, due = (np.concatenate([np.ravel(each) for each in side] or [[]]) for side in (given, right))
    return mine.shape == due.shape and bool(np.linalg.norm(mine - due) <= 1e-3 * np.linalg.norm(due))


_PACKED = (
    *("labkit.repository", "labkit.theory.shapes", "labkit.theory.sizes", "labkit.theory.traffic"),
    *("labkit.worker.collectives", "labkit.worker.strategies"),
    *(f"{_WORKER}.{name}" for name in ("sharded_layer", "tried", "watched_layer")),
)
_SHARDED_LAYER = Exercise(
    "sharded_layer",
    cases=Cases(
        _stacks,
        judge_on_ranks,
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=_REFERENCE,
        may_import=_PACKED,
        start_s=40.0,  # torch
    ),
    functions=LAYER_FUNCTIONS,
    trial=Launches(_layers, judge_layers),
    grade=STRETCH,
    hints=(
        "Who needs the whole weights, and when? After which of the three functions has `whole` memory, and after which "
        "has it none? What does each rank keep of the gradient of `whole`?",
        "`whole.untyped_storage().resize_(bytes)` gives and takes memory; `whole` keeps its shape. Write into "
        "`whole.data`, not into `whole`: autograd must not see it. The mean is the sum over the ranks, divided by how "
        "many they are.",
        "`dist.all_gather_into_tensor(self.whole.data, self.shard.data, group=self.group)` collects. "
        "`dist.reduce_scatter_tensor(self.shard.grad, self.whole.grad / self.ranks, group=self.group)` averages; "
        "`shard.grad` needs room first: `torch.empty_like(self.shard)`. Then forget `self.whole.grad`, and free.",
    ),
    solution=_REFERENCE,
)

check = Exercises(
    "ddp_fsdp",
    _SHARDED_LAYER,
    _SENT_BYTES,
    Exercise(
        "buckets",
        judge=judge,
        grade=CORE,
        cases=Cases(_models),
        hints=(
            "Go through the example by hand: sizes 4, 2, 3, 1, first cap 1, cap 4. When is the first bucket closed?",
            "Take the parameters from the last to the first. Before you add one, look whether the open bucket already"
            " holds its cap. The first bucket has a cap of its own.",
            "Keep `held` and `room`. For each number from the last: if `held >= room`, append a new list and set "
            "`held, room = 0, cap_bytes`. Then append the number to `filled[-1]` and add its size to `held`.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

RIGHT_PROGRAM = """
def average(group, bucket):
    gradients = bucket.buffer() / ranks
    work = all_reduce(gradients, async_op=True)
    return work.get_future().then(lambda f: f.value()[0])

model = Bert()
model = DistributedDataParallel(model)
model.register_comm_hook(group, average)
sampler = DistributedSampler(
    samples, num_replicas=ranks, rank=rank)

for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader(samples, sampler):
        model(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
"""
# What each bug shows, and the check that names it; worker/trials.py has the bugs.
SYMPTOMS = {
    "no_sampler": "every rank trains on the same samples: N GPUs do the work of one",
    "summed": "the ranks' gradients are added up and never divided by their number",
    "no_set_epoch": "every epoch brings the samples in the same order",
    "unused_parameter": "a parameter takes no part in the loss, and its bucket waits for ever",
}
_CODES = with_bugs(
    RIGHT_PROGRAM,
    {
        "no_sampler": [("num_replicas=ranks, rank=rank", "num_replicas=1, rank=0")],
        "summed": [("bucket.buffer() / ranks", "bucket.buffer()")],
        "no_set_epoch": [("    sampler.set_epoch(epoch)\n", "")],
        "unused_parameter": [("model = Bert()\n", "model = Bert()\nmodel.spare = Linear(8, 8)\n")],
    },
)
suspects, diagnose, show_suspects = line_up("ddp_fsdp", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_so_little() -> HTML:
    """Ask why full sharding saves so little of the recorded run's memory."""
    return why(
        "Full sharding halves parameters, gradients and states on two GPUs. Why is so little of the peak saved?",
        ("Most of the peak are activations", "They belong to the samples of a rank. No strategy here shards them."),
        ("The gathered blocks come back", "True, but only two blocks and the rest of the model are whole at a time."),
        (
            "Two GPUs are too few",
            "On more GPUs, with as many samples each, the saving grows a little. But the activations stay.",
        ),
    )
