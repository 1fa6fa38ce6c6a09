"""Lab 07's exercises: right answers pass, each typical mistake is named."""

import json

import pytest
from exercises_tried import written_as
from made import CPU, write_run

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, UNANSWERED, WRONG
from labkit.theory.step_memory import Shape, ledger
from lessons import precision_memory
from lessons.precision_memory.exercises import SHOWN, judge_levers, judge_peaks, judge_stacks, verdict_of
from lessons.precision_memory.tables import faults
from lessons.precision_memory.theory.memory import REFERENCE, YOURS, checkpointed_step, shape_of
from lessons.precision_memory.worker.tried import drive

RIGHT_ANSWER = code_of("lessons.precision_memory.solutions.peak_bytes")


def due(change=lambda items, number: sum(items.values())) -> list[float]:
    found = []
    for number, (*sizes, precision, phase) in enumerate(SHOWN):
        found.append(change(ledger(Shape(*sizes, precision), f"{phase} step"), number))
    return found


@pytest.fixture
def measured():
    return due()


def test_the_configurations_differ_in_what_decides(measured):
    leading = {max(items, key=items.get) for items in due(lambda items, _: items)}
    assert len(leading) >= 2
    assert len(set(SHOWN)) == len(SHOWN)


def test_a_right_function_and_one_within_ten_percent_pass(measured):
    assert judge_peaks(measured, measured).outcome == RIGHT
    assert judge_peaks([0.92 * one for one in measured], measured).outcome == RIGHT
    assert judge_peaks([0.85 * one for one in measured], measured).outcome == WRONG


def test_what_is_missing_is_named(measured):
    no_states = due(lambda items, number: sum(items.values()) - items["optimizer"])
    said = " ".join(judge_peaks(no_states, measured).faults.values())
    assert "as much as AdamW's two states" in said
    always = due(lambda items, n: sum(items.values()) + 2 * items["parameters"] * (SHOWN[n][-1] == "first"))
    assert "in the first step AdamW has no states yet" in " ".join(judge_peaks(always, measured).faults.values())
    assert "form" in judge_peaks([None] * len(measured), measured).faults


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        (1, "the logits in float32"),
        (2, "two arrays as large as the logits"),
        (3, "three arrays as large as the logits"),
    ],
)
def test_missing_logits_are_named_and_not_taken_for_states_or_gradients_alone(measured, arrays, part):
    number = max(range(len(SHOWN)), key=lambda number: SHOWN[number][0])  # with the largest vocabulary
    vocabulary, *_, samples, sequence, _, _ = SHOWN[number]
    given = [*measured]
    given[number] -= 4 * arrays * samples * sequence * vocabulary
    (sentence,) = judge_peaks(given, measured).faults.values()
    assert part in sentence
    assert "states" not in sentence or ", or " in sentence


def test_what_is_as_large_as_the_gradients_is_not_called_gradients_alone():
    """At the loss there are no gradients of the weights: one of the states is missing here."""
    *sizes, precision, phase = SHOWN[2]
    items = ledger(Shape(*sizes, precision), f"{phase} step")
    peak = sum(items.values())
    assert items["gradients"] == 0
    faults_named = judge_peaks([peak - items["optimizer"] / 2], [peak], configurations=[SHOWN[2]]).faults
    assert "their gradients, or one of AdamW's two states" in " ".join(faults_named.values())


def test_no_single_term_is_enough(measured):
    """A function that forgets one item fails at one configuration at least."""
    for item in ("optimizer", "activations", "copies", "temporary"):
        without = due(lambda items, _, item=item: sum(items.values()) - items[item])
        assert judge_peaks(without, measured).outcome == WRONG, item


TORCHS_LEVER = "checkpoint every 2nd block"
STACKS = precision_memory.check.by_name["run_blocks"].inputs
CHECKPOINT = "import torch\n\n\n" + "\n\n\n".join(
    code_of(f"lessons.precision_memory.worker.checkpoints.{name}") for name in ("Checkpoint", "run_blocks")
)
CHECKPOINT = CHECKPOINT.replace(
    "blocks: Sequence[Callable], x: torch.Tensor, every: int) -> torch.Tensor:", "blocks, x, every):"
)
LOOP = "x = Checkpoint.apply(block, x) if number % every == 0 else block(x)"
TORCHS = "x = checkpoint(block, x, use_reentrant=False) if number % every == 0 else block(x)"
IMPORTED = ("import torch\n", "import torch\nfrom torch.utils.checkpoint import checkpoint\n")
AGAIN = "y = ctx.block(x)"
WITH_GRAPH = "with torch.enable_grad():\n            ctx.y = block(x)\n        return ctx.y + 0"
SEGMENTS = """for number in range(0, len(blocks), every):
        def run(x, some=blocks[number : number + every]):
            for block in some:
                x = block(x)
            return x

        x = Checkpoint.apply(run, x)"""


def stacked(*swaps):
    """Give the verdict on the right checkpoint with some of its text replaced; results come back through JSON."""
    text = CHECKPOINT
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new)
    run_blocks = written_as("precision_memory.run_blocks", text)
    return judge_stacks(json.loads(json.dumps([[drive(run_blocks, None, *case)] for case in STACKS])), STACKS)


@pytest.mark.parametrize(
    ("swaps", "kinds"),
    [
        ([], set()),
        ([IMPORTED, (LOOP, TORCHS)], set()),
        ([IMPORTED, (LOOP, TORCHS.replace("False", "True"))], set()),
        ([(LOOP, "x = block(x)")], {"nothing"}),
        ([(LOOP, "x = Checkpoint.apply(block, x)")], {"others"}),
        ([(LOOP, LOOP.replace("== 0", "== every - 1"))], {"kept", "nothing"}),
        ([(LOOP, LOOP.replace("== 0", "> 0"))], {"kept", "nothing"}),
        ([(f"for number, block in enumerate(blocks):\n        {LOOP}", SEGMENTS)], {"others"}),
        ([(LOOP, "with torch.no_grad():\n            x = block(x)")], {"no_gradient"}),
        ([(LOOP, "x = block(x if number % every else x.detach())")], {"no_gradient", "x_gradient"}),
        ([("return block(x)", WITH_GRAPH)], {"nothing"}),
        ([("return block(x)", "block(x)\n        return block(x)")], {"twice"}),
        ([("return block(x)", "return block(x) + 1e-6")], {"result"}),
        ([("return block(x)", "return block(x) * float('nan')")], {"result"}),
        ([("enumerate(blocks)", "enumerate(blocks[::-1])")], {"result"}),
        ([("enumerate(blocks)", "enumerate(blocks[:-1])")], {"left_out"}),
        ([(AGAIN, f"{AGAIN}\n            y = ctx.block(x)")], {"again"}),
        ([("y.backward(gradient)", "ctx.block.y = y\n        y.backward(gradient, retain_graph=True)")], {"together"}),
        ([("y.backward(gradient)", "y.backward(torch.ones_like(y))")], {"gradient"}),
        ([("None, x.grad", "None, gradient")], {"gradient", "x_gradient"}),
        ([("None, x.grad", "None, None")], {"no_gradient", "x_gradient"}),
        ([("y.backward(gradient)", "(x.grad,) = torch.autograd.grad(y, x, gradient)")], {"no_gradient"}),
        ([("    return x", "    return list(x)")], {"form"}),
        ([("    return x", "    return x[0]")], {"form"}),
    ],
)  # fmt: skip
def test_each_mistake_of_a_checkpoint_by_its_kind(swaps, kinds):
    verdict = stacked(*swaps)
    assert set(verdict.faults) == kinds, verdict
    assert (verdict.outcome, bool(verdict.merits)) == ((WRONG, False) if kinds else (RIGHT, True))


def test_stacks_end_with_a_checkpointed_block_and_with_others():
    ends = {(blocks - 1) % every == 0 for _, blocks, every, _ in STACKS}
    assert ends == {True, False} and any(every > blocks for _, blocks, every, _ in STACKS)


@pytest.mark.usefixtures("elsewhere")
def test_a_right_checkpoint_is_measured_beside_the_formula_and_stands_among_the_levers():
    answers.save("precision_memory.run_blocks", CHECKPOINT)
    verdict = precision_memory.check("run_blocks", size="small")
    assert verdict.outcome == RIGHT, verdict
    assert "from the formula's" in verdict.merits[1] and "with torch's" in verdict.merits[2]
    plan = precision_memory.Levers.small(levers=("plain",), yours=precision_memory.yours("run_blocks"))
    assert [knobs["lever"] for knobs in plan.knobs()] == ["plain", YOURS]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (CHECKPOINT.replace(AGAIN, "while True:\n                pass"), "hung"),
        (CHECKPOINT.replace("ctx.save_for_backward(x)", "ctx.save_for_backward(y)"), "raised"),
    ],
)
def test_a_checkpoint_that_does_not_come_back_or_raises(code, kind):
    answers.save("precision_memory.run_blocks", code)
    faults = precision_memory.check("run_blocks", size="small", patience_s=1.0).faults
    assert [*faults] == [kind]
    assert ("a loop in it does not end" in faults[kind]) == (kind == "hung"), "one rank waits for no other"


@pytest.mark.parametrize(
    ("peak", "loss", "kinds"), [(1.0, 1.0, []), (1.2, 1.0, ["peak"]), (0.8, 1.0, ["peak"]), (1.0, 1.1, ["loss"])]
)
def test_a_peak_off_the_formula_and_another_loss_are_named(peak, loss, kinds, tmp_path):
    plan = precision_memory.Levers.small(seeds=(0,), levers=("plain", TORCHS_LEVER, REFERENCE), yours="answer.py")
    due = checkpointed_step(shape_of(plan, precision="bfloat16"), 2) / 2**20
    rows = []
    for number, lever in enumerate(("plain", TORCHS_LEVER, REFERENCE, YOURS)):
        mine = lever == YOURS
        knobs = {"point": number, "lever": lever, "iteration": 0, "warm_up": False}
        rows.append((0, knobs | {"entry": "memory", "peak_mib": due * (peak if mine else 1)}))
        rows.append((0, knobs | {"entry": "step", "step_ms": 5.0, "loss": 6.0 * (loss if mine else 1)}))
    assert [*judge_levers(write_run(tmp_path / "run", plan, CPU, rows)).faults] == kinds


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.slow
def test_an_answer_is_measured_here():
    skeleton = (
        "def peak_bytes(vocabulary, hidden, inner, layers, heads, samples, sequence, precision, phase):\n    ...\n"
    )
    answers.save("precision_memory.peak_bytes", skeleton)
    assert precision_memory.check("peak_bytes").outcome == UNANSWERED
    answers.save("precision_memory.peak_bytes", RIGHT_ANSWER)
    verdict = precision_memory.check("peak_bytes")
    assert verdict.outcome == RIGHT, verdict
    with pytest.raises(ValueError, match="'peak' is no exercise"):
        precision_memory.check("peak")


ROW = {"variant": "x", "extra_peak": 0.0, "extra_after_backward": 0.0, "growth": 0.0}
ROW |= {"activations": 5.0, "copies": 2.0, "metrics": 4.0}


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({}, []),
        ({"growth": 4.0, "extra_peak": 14.0, "extra_after_backward": 14.0}, ["metric_keeps_graph"]),
        ({"extra_after_backward": 2.0}, ["autocast_around_backward"]),
        ({"extra_peak": 10.0}, ["list_of_losses"]),
    ],
)
def test_symptoms(change, kinds):
    verdict = verdict_of(ROW | change)
    assert faults(ROW | change) == list(verdict.faults) == kinds
    assert verdict.outcome == (WRONG if kinds else RIGHT)
