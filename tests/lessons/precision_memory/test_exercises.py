"""Lab 07's exercises: right answers pass, each typical mistake is named."""

import pytest

from labkit.course import answers
from labkit.course.source import code_of
from labkit.course.verdict import RIGHT, UNANSWERED, WRONG
from lessons import precision_memory
from lessons.precision_memory.exercises import SHOWN, judge_peaks, judge_placement, verdict_of
from lessons.precision_memory.tables import faults
from lessons.precision_memory.theory.memory import Block, Shape, best_placement, checkpointed_peak, ledger

PLACEMENTS = [
    ([Block(*block) for block in blocks], budget)
    for blocks, budget in precision_memory.check.by_name["placement"].inputs
]
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


def test_placements():
    right = [sorted(best_placement(blocks, budget)[0]) for blocks, budget in PLACEMENTS]
    assert judge_placement(right, PLACEMENTS).outcome == RIGHT
    everything = [list(range(len(blocks))) for blocks, _ in PLACEMENTS]
    assert "time" in judge_placement(everything, PLACEMENTS).faults
    assert "budget" in judge_placement([[] for _ in PLACEMENTS], PLACEMENTS).faults
    assert "form" in judge_placement([None for _ in PLACEMENTS], PLACEMENTS).faults
    assert "bounds" in judge_placement([[99] for _ in PLACEMENTS], PLACEMENTS).faults
    kept = [([10.0, 1.0, 1.0] if number < 3 else [40.0, 1.0, 2.0]) for number in range(4)]
    assert "while a block is computed again" in judge_placement([[3]], [(kept, 45.0)]).faults["budget"]


def test_no_simple_rule_places_all():
    """Neither the largest first, nor the cheapest first, nor the first blocks first is best everywhere."""
    rules = {
        "largest": lambda blocks: sorted(range(len(blocks)), key=lambda at: -blocks[at].kept_mib),
        "cheapest": lambda blocks: sorted(range(len(blocks)), key=lambda at: blocks[at].forward_ms),
        "first": lambda blocks: range(len(blocks)),
    }
    for rule in rules.values():
        given = []
        for blocks, budget in PLACEMENTS:
            chosen: list[int] = []
            for at in rule(blocks):
                if checkpointed_peak(blocks, set(chosen)) <= budget:
                    break
                chosen.append(at)
            given.append(chosen)
        assert judge_placement(given, PLACEMENTS).outcome == WRONG


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
