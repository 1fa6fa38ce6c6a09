"""The exercises of lab 17: the share of the peak rate, a loss in pieces; then the bugs of three optimizers to name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.exercises import Trial as Launches
from labkit.course.judging import Mistake, relative_distance
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.theory.gpt import flop_per_token
from lessons.one_gpu.plan import Head
from lessons.one_gpu.tables import head, symptoms

if TYPE_CHECKING:
    from labkit.engine.run import Run

_CLOSE = 1e-4  # of gradients in float32


def mfu(
    tokens_per_s: float, parameters: int, layers: int, hidden: int, sequence: int, peak_tflop_per_s: float
) -> float:
    """Return the share of the peak rate that a training's FLOP reach."""
    return tokens_per_s * flop_per_token(parameters, layers, hidden, sequence) / (peak_tflop_per_s * 1e12)


def _trainings(random: Random) -> list:
    """Return tokens/s, parameters, layers, width, sequence and the peak rate of trainings, short and long sequences."""
    drawn, thousands, peaks = [], [2, 30, 60], [312, 989, 2250]
    random.shuffle(thousands)
    random.shuffle(peaks)
    for sequence, least, peak in zip((128, 1024, 8192), thousands, peaks, strict=True):
        layers, hidden = random.randint(12, 48), 64 * random.randint(12, 64)
        parameters = 12 * layers * hidden**2 + random.randint(10, 90) * 10**6
        drawn.append((random.randint(least, least + 28) * 1000, parameters, layers, hidden, sequence, peak))
    return drawn


_MFU = compared(
    "mfu",
    mfu,
    (
        Mistake("percent", lambda *given: 100 * mfu(*given), "a share of 1 is all of the peak rate: no percent"),
        Mistake(
            "forward_alone",
            lambda *given: mfu(*given) / 3,
            "that is the forward alone; backward takes twice as much",
        ),
        Mistake(
            "no_attention",
            lambda rate, parameters, layers, hidden, sequence, peak: 6 * rate * parameters / (1e12 * peak),
            "attention's products are missing: 12 · layers · width · sequence per token",
        ),
        Mistake(
            "attention_forward",
            lambda rate, parameters, layers, hidden, sequence, peak: (
                rate * (6 * parameters + 4 * layers * hidden * sequence) / (1e12 * peak)
            ),
            "attention's products, too, are made once in forward and twice in backward",
        ),
        Mistake("tera", lambda *given: mfu(*given) * 1e12, "the peak rate is in 10¹² FLOP per second"),
        Mistake("giga", lambda *given: mfu(*given) * 1e3, "the peak rate is in 10¹² FLOP per second"),
        Mistake("upside_down", lambda *given: 1 / mfu(*given), "that is the peak rate over the rate reached"),
    ),
    result_form="a share",
    rule="FLOP per token times tokens per second, over the peak rate",
    merit="parameters and attention are counted, forward and backward",
    cases=Cases(_trainings),
    grade=WARM_UP,
    hints=(
        "How many FLOP does one token take? Each parameter is multiplied and added, forward once, backward twice.",
        "6 per parameter, and 12 · layers · width · sequence for attention. Times tokens per second, that are FLOP per "
        "second.",
        "`flop = 6 * parameters + 12 * layers * hidden * sequence`; `return tokens_per_s * flop / (peak_tflop_per_s * "
        "1e12)`.",
    ),
)


def _heads(random: Random) -> list:
    """Return one rank, tokens, words, width, pieces, the logits' size and a seed; the last piece may be shorter."""
    sizes = ((48, 400, 3, 12, 1.0), (50, 500, 3, 13, 1.0), (64, 300, 4, 16, 1.0), (46, 400, 3, 13, 400.0))
    return [(1, *size, random.randint(1, 10**6)) for size in sizes]


def judge_head(given: list, inputs: Sequence[Sequence[Any]], due: list) -> Verdict:
    """Return the verdict on loss, gradients and the bytes held, `due` being those of the reference solution."""
    even_passed = False
    for (mine,), (right,), (_, *size, scale, _) in zip(given, due, inputs, strict=True):
        tokens, words, _, pieces = size
        if faults := {"form": f"it {mine['form']}"} if "form" in mine else _head_faults(mine, right, *size):
            if even_passed and tokens % pieces and scale == 1 and not {*faults} & {"form", "whole"}:
                faults = {"uneven": "pieces have unequal lengths: none is left out, and each token weighs 1/tokens"}
            where = f"with {tokens} tokens, {words} words and {pieces} pieces"
            where += f" and logits around ±{scale:g}" if scale > 1 else ""
            return Verdict.of_faults("head_loss", {kind: f"{where}, {said}" for kind, said in faults.items()})
        even_passed |= tokens % pieces == 0
    return Verdict.of_faults(
        "head_loss", {}, "loss and gradients are torch's, and the logits are never there as a whole"
    )


def _head_faults(mine: dict, right: dict, tokens: int, words: int, _width: int, pieces: int) -> dict[str, str]:
    """Return what is wrong with one call."""
    vectors = [(np.array(mine[name]), np.array(right[name])) for name in ("d_hidden", "d_head")]
    off = [relative_distance(*pair) > _CLOSE for pair in vectors]
    ratios = [float(a @ b / (b @ b)) for a, b in vectors]
    if not all(map(math.isfinite, (mine["loss"], *ratios))):
        return {"overflow": "a number is infinite or none: `log_softmax` takes the largest logit away first"}
    if any(off):
        return _gradient_fault(off, ratios, tokens, pieces)
    if abs(mine["loss"] / right["loss"] - 1) > _CLOSE:
        said = f"the loss is {units.number(mine['loss'])} instead of {units.number(right['loss'])}"
        return {"loss": f"{said}: add up what all pieces' tokens lose, and divide by all tokens"}
    if mine["peak"] >= 4 * tokens * words:  # all logits in float32; seven numbers per logit of a piece are fewer
        times = units.times(mine["peak"] / right["peak"])
        return {
            "whole": f"it holds {times} what the reference solution holds: is there anything of all tokens × words?"
        }
    return {}


def _gradient_fault(off: list[bool], ratios: list[float], tokens: int, pieces: int) -> dict[str, str]:
    if all(abs(ratio / tokens - 1) < 0.01 for ratio in ratios):
        return {"summed": f"gradients are {tokens} times too large: the loss is the mean of all tokens"}
    if all(abs(ratio / pieces - 1) < 0.35 and ratio > 1.5 for ratio in ratios):  # shorter pieces weigh otherwise
        return {"mean_of_pieces": "gradients are larger by about the pieces: divide by all tokens, not by a piece's"}
    if all(abs(ratio + 1) < 0.01 for ratio in ratios):
        return {"sign": "gradients point the other way: it is the loss that falls"}
    if off == [False, True]:
        return {"last_piece": "d_hidden is right and d_head is not: every piece adds to the gradient of the head"}
    if off == [True, False]:
        return {
            "d_hidden": "d_head is right and d_hidden is not: a piece's rows are its logits' gradient times the head"
        }
    return {"wrong": "gradients are wrong: a logit's is its probability, less 1 at the target, over all tokens"}


def _heads_timed(file: str, *, size: str = "small", gpus: int = 0) -> list[Head]:
    return [Head.sized(size, gpus=min(gpus, 1), seeds=1, yours=file)]


def judge_run(run: Run) -> Verdict:
    """Return the verdict on a student's function that was timed beside torch's loss of all logits."""
    table = head(run).set_index("way")
    if (status := table.loc["yours", "status"]) != "ok":
        return Verdict.of_faults("head_loss", {"failed": f"on {run.plan.workers_text} it ends with {status}"})
    said = [
        f"{units.seconds(table.loc[way, 'ms'] / 1e3)} and {units.number(table.loc[way, 'peak_mib'])} MiB {whose}"
        for way, whose in (
            ("yours", "with your pieces"),
            ("pieces", "with the reference solution"),
            ("whole", "with all logits at once"),
        )
    ]
    plan = run.plan
    where = f"on {plan.workers_text}, {plan.tokens} tokens × {plan.words} words in {plan.pieces} pieces"
    return Verdict.of_faults("head_loss", {}, f"{where} take {said[0]}; {said[1]}; {said[2]}")


_WORKER = "lessons.one_gpu.worker"
_HEAD_LOSS = Exercise(
    "head_loss",
    judge=judge_head,
    trial=Launches(_heads_timed, judge_run),
    grade=CORE,
    cases=Cases(
        _heads,
        driver=f"{_WORKER}.tried",
        on_ranks=True,
        reference=(f"{_WORKER}.pieces.head_loss",),
        may_import=("labkit.worker.allocations.CountedMemory", f"{_WORKER}.pieces", f"{_WORKER}.tried"),
        start_s=40.0,  # torch
    ),
    solution=(f"{_WORKER}.pieces.head_loss",),
    hints=(
        "What does one piece of tokens need? Its own logits. What do all pieces share? The loss, and the head's "
        "gradient.",
        "Go through `hidden.chunk(pieces)` and `targets.chunk(pieces)` together. The gradient of a piece's logits is "
        "their probabilities, less 1 at each target, over all tokens. It gives the piece's rows of `d_hidden`, and it "
        "adds to `d_head`.",
        "`log_p = (h @ head.T).log_softmax(-1)`; `loss -= log_p.gather(1, t[:, None]).sum() / tokens`; "
        "`d = log_p.exp()`; `d[torch.arange(len(t)), t] -= 1`; `d /= tokens`; the rows are `d @ head`, and "
        "`d_head += d.T @ h`.",
    ),
)

check = Exercises("one_gpu", _HEAD_LOSS, _MFU)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours

_RIGHT = """
def update(weight, copy, gradient, m, v, step):
    # weight: bfloat16; copy, m, v: float32
    g = gradient.float()
    m.lerp_(g, 1 - beta1)
    v.lerp_(g * g, 1 - beta2)
    m_hat = m / (1 - beta1 ** step)
    v_hat = v / (1 - beta2 ** step)
    copy.mul_(1 - rate * decay)
    copy.sub_(rate * m_hat / (v_hat.sqrt() + epsilon))
    weight.copy_(copy)

for step in range(1, steps + 1):
    for state in states:
        update(*state, step)
"""
SYMPTOMS = {
    "rounded_away": "weights are updated in bfloat16: a step that is small beside a weight is rounded away",
    "first_step_forever": "each step corrects the moments as the first one does, so that steps grow",
    "decay_without_rate": "weight decay is not multiplied by the learning rate",
}
_CODES = with_bugs(
    _RIGHT,
    {
        "rounded_away": [
            (
                "def update(weight, copy, gradient, m, v, step):\n    # weight: bfloat16; copy, m, v: float32",
                "def update(weight, gradient, m, v, step):\n    # weight: bfloat16; m, v: float32",
            ),
            ("copy.mul_", "weight.mul_"),
            ("copy.sub_", "weight.sub_"),
            ("    weight.copy_(copy)\n", ""),
        ],
        "first_step_forever": [("update(*state, step)", "update(*state, 1)")],
        "decay_without_rate": [("(1 - rate * decay)", "(1 - decay)")],
    },
)


def verdict_of(row: dict[str, Any]) -> Verdict:
    """Return the verdict on one variant's symptoms, a row of `symptoms`."""
    faults: dict[str, str] = {}
    if row["gains_moved"] < 0.5:
        faults["rounded_away"] = (
            "LayerNorm's gains stay where they were: a step is less than half the way from 1 to the next number"
        )
    elif row["gains_moved"] > 5:
        faults["decay_without_rate"] = (
            f"the gains move {units.number(row['gains_moved'], 2)}× as far: they decay at full rate"
        )
    elif row["last_update"] > 1.5 * row["first_update"]:
        faults["first_step_forever"] = (
            f"the first step is right, and the last {units.number(row['last_update'], 2)}× as long: moments are "
            "corrected for one step"
        )
    return Verdict.of_faults(row["variant"], faults, "gains, matrices and every step move as with float32 copies")


suspects, diagnose, show_suspects = line_up("one_gpu", SYMPTOMS, symptoms, verdict_of, _CODES)


def why_fused() -> HTML:
    """Ask why fused attention makes the step so much faster."""
    return why(
        "Fused attention computes the same numbers. Why is the recorded step so much faster with it?",
        (
            "It never writes the scores to memory",
            "They are a number per pair of tokens: memory, not arithmetic, was slow.",
        ),
        ("It multiplies in lower precision", "The rung before already multiplies in bfloat16."),
        ("It needs fewer multiplications", "Backward even computes the scores a second time."),
    )
