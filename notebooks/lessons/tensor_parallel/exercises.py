"""The exercises of lab 16: who has which part, a row-parallel layer, the loss of split logits, and the bug."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, STRETCH, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.tensor_parallel.judged import judge_loss, judge_row
from lessons.tensor_parallel.plan import Equality, Steps
from lessons.tensor_parallel.tables import cases as case_table
from lessons.tensor_parallel.tables import steps, symptoms
from lessons.tensor_parallel.theory import COLUMN, ROW, VOCABULARY, local_part

if TYPE_CHECKING:
    from labkit.engine.run import Run

_WORKER = "lessons.tensor_parallel.worker"
NUMBER_OF_RANKS = (2, 3, 4)
_ROW_CASES = ("plain", "biased", "sequence", "sequence_biased")
_LOSS_CASES = ("plain", "large")
_TRAINED = ("plain", "tied", "biased", "sequence", "sequence_tied")


def _shown(hole: str, cases: tuple[str, ...]) -> list[tuple[int, str, str, int]]:
    """Return ranks, hole, case and seed of what the notebook tries: every case with every number of ranks."""
    return [(ranks, hole, case, seed) for seed, case in enumerate(cases) for ranks in NUMBER_OF_RANKS]


def _hidden(hole: str, cases: tuple[str, ...], random: Random) -> list[tuple[int, str, str, int]]:
    return [(ranks, hole, case, random.randint(1, 10**6)) for ranks, case in zip(cycle(NUMBER_OF_RANKS), cases)]


def _trained_with(file: str, *, size: str = "small", gpus: int = 0) -> list[Steps]:
    return [Steps.sized(size, gpus=gpus, seeds=1, strategies=("torch", "tensor"), row=file)]


def judge_steps(run: Run) -> Verdict:
    """Return the verdict on a row-parallel layer whose steps were timed beside the reference solution's and torch's."""
    table = steps(run).set_index("strategy")
    if (failed := table[table["status"] != "ok"]["status"]).size:
        return Verdict.of_faults("row", {"failed": f"on {run.plan.workers_text} a step ends with {failed.iloc[0]}"})
    yours, ours, torchs = (units.seconds(table.loc[name, "step_ms"] / 1e3) for name in ("yours", "tensor", "torch"))
    times = f"{yours} with your functions, {ours} with the reference solution, and {torchs} with torch's classes"
    return Verdict.of_faults("row", {}, f"on {run.plan.workers_text} a training step takes {times}")


def _equal_with(file: str, *, size: str = "small", gpus: int = 0) -> list[Equality]:
    return [Equality.sized(size, gpus=gpus, seeds=1, cases=_TRAINED, loss=file)]


def judge_trained(run: Run) -> Verdict:
    """Return the verdict on a loss that trained a split model beside whole layers."""
    table = case_table(run)
    wrong = table.loc[~table["right"].astype(bool), "case"]
    faults = {"trained": f"on {run.plan.workers_text} training is not that of whole layers: {', '.join(wrong)}"}
    merit = f"on {run.plan.workers_text} a split model trains with it as whole layers do"
    return Verdict.of_faults("parallel_loss", faults if len(wrong) else {}, merit)


def _on_ranks(name: str, judge: Any, cases: tuple[str, ...], reference: tuple[str, ...], **more: Any) -> Exercise:
    """Return an exercise that ranks try together."""
    tried = Cases(
        partial(_hidden, name, cases),
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=tuple(f"{_WORKER}.layers.{function}" for function in reference),
        may_import=("labkit.worker.collectives", *(f"{_WORKER}.{module}" for module in ("tried", "layers"))),
        start_s=40.0,  # torch
    )
    return Exercise(name, _shown(name, cases), judge, solution=tried.reference, cases=tried, **more)


_LAYERS = (*COLUMN, *ROW, *VOCABULARY, "norm")
PARTS = (
    ("query", 8, 8, 2, 1),
    ("key", 30, 60, 5, 4),
    ("value", 16, 8, 8, 5),
    ("out", 8, 8, 2, 1),
    ("gate", 24, 8, 4, 2),
    ("up", 24, 8, 4, 3),
    ("down", 8, 24, 4, 3),
    ("embedding", 96, 8, 4, 3),
    ("head", 96, 8, 2, 0),
    ("norm", 8, 1, 2, 1),
)  # layer, outputs, inputs, ranks, rank


def _parts(random: Random) -> list:
    """Return every layer on 2, 3, 4 and 8 ranks: first, inner and last ones."""
    cases = []
    for layer in _LAYERS:
        for ranks in (2, 3, 4, 8):
            outputs, inputs = (24 * random.randint(1, 9) for _ in range(2))
            shape = (outputs, 1) if layer == "norm" else (outputs, inputs)
            cases += [(layer, *shape, ranks, rank) for rank in sorted({0, ranks // 2, ranks - 1})]
    return cases


def _transposed(layer: str, outputs: int, inputs: int, ranks: int, rank: int) -> list[int]:
    swapped = {"out": "up", "down": "up", **dict.fromkeys((*COLUMN, *VOCABULARY), "out")}.get(layer, layer)
    return local_part(swapped, outputs, inputs, ranks, rank)


_LOCAL_PART = compared(
    "local_part",
    local_part,
    (
        Mistake(
            "words_not_split",
            lambda layer, *sizes: local_part("out" if layer in VOCABULARY else layer, *sizes),
            "embedding and head are split by words, which are the rows of their weights",
        ),
        Mistake("transposed", _transposed, "a column-parallel layer splits its outputs, a row-parallel one its inputs"),
        Mistake(
            "all_columns",
            lambda layer, *sizes: local_part("norm" if layer == "norm" else "query", *sizes),
            "`out` and `down` get their inputs from layers that are split: they split their inputs",
        ),
        Mistake(
            "whole",
            lambda layer, *sizes: local_part("norm", *sizes),
            "each rank has a part of every matrix",
        ),
        Mistake(
            "norm_split",
            lambda layer, *sizes: local_part("query" if layer == "norm" else layer, *sizes),
            "a norm is whole on every rank",
        ),
        Mistake(
            "words_whole",
            lambda layer, *sizes: local_part("norm" if layer in VOCABULARY else layer, *sizes),
            "embedding and head are split by words, which are the rows of their weights",
        ),
        Mistake(
            "columns_first",
            lambda *knobs: [*local_part(*knobs)[2:], *local_part(*knobs)[:2]],
            "return the rows first, then the columns",
        ),
        Mistake(
            "sizes",
            lambda *knobs: [each for begin, end in _pairs(local_part(*knobs)) for each in (begin, end - begin)],
            "return where a part ends, not how long it is",
        ),
    ),
    result_form="a list of four whole numbers",
    rule="first row, the row after the last, first column, the column after the last, of this rank's part",
    merit="every layer is split so that its neighbours fit",
    inputs=PARTS,
    grade=WARM_UP,
    cases=Cases(_parts),
    hints=(
        "A weight has a row per output and a column per input. `query` comes first in its part of the model: what may "
        "each rank compute without the others? `out` comes last: what does each rank have then?",
        "Column-parallel (`query`, `key`, `value`, `gate`, `up`) and the vocabulary's two split rows; row-parallel "
        "(`out`, `down`) splits columns; a norm is whole.",
        "`rows = [rank * outputs // ranks, (rank + 1) * outputs // ranks]`, and the same with `inputs` for columns.",
    ),
)


def _pairs(part: list[int]) -> list[tuple[int, int]]:
    return [(part[0], part[1]), (part[2], part[3])]


check = Exercises(
    "tensor_parallel",
    _on_ranks(
        "row",
        judge_row,
        _ROW_CASES,
        ("RowParallel.forward", "Ranks.enter_backward"),
        functions=("forward", "enter_backward"),
        trial=Trial(_trained_with, judge_steps),
        grade=CORE,
        hints=(
            "Each rank multiplies its inputs with its columns. What is missing in every output, and who has it? And "
            "which ranks used the number that entered?",
            "`forward`: the product of this rank, then `self.ranks.leave`, then the bias. `enter_backward`: the "
            "sum of the ranks' gradients.",
            "`y = self.ranks.leave(functional.linear(x, self.weight))`, plus `self.bias` unless it is None; "
            "`return self.sum(gradient)`.",
        ),
    ),
    _LOCAL_PART,
    _on_ranks(
        "parallel_loss",
        judge_loss,
        _LOSS_CASES,
        ("parallel_loss",),
        trial=Trial(_equal_with, judge_trained),
        grade=STRETCH,
        hints=(
            "The loss of a token is log Σ exp(logit) − logit of its target. The sum goes over all words: each rank has "
            "some. And which rank has the target?",
            "Subtract the largest logit of all ranks. Sum the exponentials here, then over the ranks. Of the target, "
            "the rank that has it gives its logit, and the others zero: sum that, too.",
            "`largest = ranks.max(logits.max(-1, keepdim=True).values)`; `total = ranks.sum_over_ranks((logits - "
            "largest).exp().sum(-1))`; `own = targets - ranks.rank * words`; `mine = (own >= 0) & (own < words)`.",
        ),
    ),
    imported_as="tp",
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

SYMPTOMS = {  # what is wrong with each of the split models that train with a bug
    "same_mask": "where each rank has its own positions, all draw the same mask",
    "bias_everywhere": "each rank adds the bias before the parts are summed",
    "not_summed": "the gradients of what enters are not summed over the ranks",
}
_RIGHT = """
def forward(block, hidden):
    # all positions, no dropout
    x = enter(block.norm(hidden))
    x = relu(block.up(x))
    x = leave(block.down.weight @ x) + block.down.bias
    return hidden + x

def enter_backward(gradient):
    return all_reduce(gradient)
"""
_WITH_DROPOUT = [
    ("# all positions, no dropout", "# this rank's positions, dropout"),
    ("return hidden + x", "return hidden + dropout(x, mask_of(seed))"),
    ("all_reduce(gradient)", "reduce_scatter(gradient)"),
]
_CODES = with_bugs(
    _RIGHT,
    {
        "same_mask": _WITH_DROPOUT,
        "bias_everywhere": [("@ x) + block.down.bias", "@ x + block.down.bias)")],
        "not_summed": [("return all_reduce(gradient)", "return gradient")],
    },
)
_SEEN = 1e-4  # relative


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's symptoms, with a sentence per fault."""
    faults: dict[str, str] = {}
    first = row["first_error"]
    if first != first:
        if row["same_mask"] == 1:
            faults["same_mask"] = "every place of the mask is the same on two ranks, which hold other positions"
    elif first > _SEEN:
        faults["bias_everywhere"] = f"the first loss is {units.percent(first)} off: forward is wrong"
    elif row["weight_error"] > _SEEN:
        faults["not_summed"] = "the first loss is right, and the weights after it are not: backward is wrong"
    return Verdict.of_faults(row["variant"], faults, "losses and weights are those of whole layers")


suspects, diagnose, show_suspects = line_up("tensor_parallel", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_not_more_tokens() -> HTML:
    """Ask why a larger batch does not make sending a smaller share."""
    return why(
        "A larger batch does not make the share of sending smaller. Why?",
        (
            "Both grow with it",
            "Each token is multiplied and its row is sent. Only a wider row is multiplied more.",
        ),
        ("The weights are sent, too", "No: weights stay where they are. Activations are sent."),
        ("Larger messages are slower", "They are faster per byte, and the bytes grow with the tokens."),
    )
