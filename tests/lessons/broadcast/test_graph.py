"""What waits for what in a broadcast: copies that could run simultaneously, and the longest chain of waiting copies.

Every function runs in one real launch on small tensors; most have the right values and are wrong in their graph alone.
"""

from __future__ import annotations

import pytest
from broadcasts import PIPELINED, SCATTER, watched

from labkit.course import answers
from labkit.course.verdict import HUNG, RIGHT, WRONG
from lessons.broadcast import exercises, graph
from lessons.broadcast.exercises import check, judge

WITHOUT_AFTER = PIPELINED.replace(", after=arrived", "")
WAITS_FIRST = WITHOUT_AFTER.replace("        for gpu", "        lanes.wait()\n        for gpu")

CHAINED = """
def {name}(source, copies, chunks, lanes):
    last = None
    for part in lanes.parts(len(source), chunks):
        last = lanes.host(0).copy(copies[0][part], source[part], after=last)
        for gpu in lanes.others(0):
            last = lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=last)
"""

ALL_BUT_ONE = """
def {name}(source, copies, chunks, lanes):
    parts = lanes.parts(len(source), chunks)
    arrived = [lanes.host(0).copy(copies[0][part], source[part]) for part in parts]
    for k, part in enumerate(parts):
        for gpu in lanes.others(0):
            after = arrived[0] if (k, gpu) == (0, 1) else arrived[-1]
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=after)
"""

LAST_CHUNK_FIRST = """
def {name}(source, copies, chunks, lanes):
    parts = lanes.parts(len(source), chunks)
    arrived = [lanes.host(0).copy(copies[0][part], source[part]) for part in parts]
    for part, copy in reversed([*zip(parts, arrived)]):
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=copy)
"""

WHOLE_FORWARD = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
    for gpu in lanes.others(0):
        lanes.peer(0, gpu).copy(copies[gpu], copies[0], after=arrived)
"""

SCATTER_THEN_GATHER = """
def {name}(source, copies, chunks, lanes):
    share = len(source) // len(copies)
    for gpu in range(len(copies)):
        for part in lanes.parts(share, chunks, first=gpu * share):
            lanes.host(gpu).copy(copies[gpu][part], source[part])
    lanes.wait()
    for gpu in range(len(copies)):
        for part in lanes.parts(share, chunks, first=gpu * share):
            for other in lanes.others(gpu):
                lanes.peer(gpu, other).copy(copies[other][part], copies[gpu][part])
"""

CHAIN_OF_GPUS = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            arrived = lanes.peer(gpu - 1, gpu).copy(copies[gpu][part], copies[gpu - 1][part], after=arrived)
"""

RING = """
def {name}(source, copies, chunks, lanes):
    share, gpus = len(source) // len(copies), len(copies)
    parts = [lanes.parts(share, chunks, first=gpu * share) for gpu in range(gpus)]
    arrived = {{}}
    for gpu in range(gpus):
        for k, part in enumerate(parts[gpu]):
            arrived[gpu, gpu, k] = lanes.host(gpu).copy(copies[gpu][part], source[part])
    for step in range(gpus - 1):
        for gpu in range(gpus):
            owner, following = (gpu - step) % gpus, (gpu + 1) % gpus
            for k, part in enumerate(parts[owner]):
                copy = lanes.peer(gpu, following).copy
                arrived[following, owner, k] = copy(
                    copies[following][part], copies[gpu][part], after=arrived[gpu, owner, k]
                )
"""

PULLS_FIRST = """
def {name}(source, copies, chunks, lanes):
    parts = lanes.parts(len(source), chunks)
    arrived = [lanes.host(0).copy(copies[0][part], source[part]) for part in parts]
    for part, copy in zip(parts, arrived):
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=copy)
"""

EVERY_SECOND = """
def {name}(source, copies, chunks, lanes):
    half = len(source) // 2
    for first in (0, half):
        for part in lanes.parts(half, chunks // 2, first=first):
            arrived = lanes.host(0).copy(copies[0][part], source[part])
            for gpu in lanes.others(0):
                lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)
"""

SHORT_FORWARDS = """
def {name}(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        middle = (part.start + part.stop) // 2
        for piece in (slice(part.start, middle), slice(middle, part.stop)):
            for gpu in lanes.others(0):
                lanes.peer(0, gpu).copy(copies[gpu][piece], copies[0][piece], after=arrived)
"""

PULL, FORWARD = "copies[0][part], source[part]", "copies[gpu][part], copies[0][part]"
REUSE = "    source.zero_()\n"

# name: text, exercise, the kinds of fault that the check must find (no other)
WRONG_ANSWERS = {
    "chained": (CHAINED, "pipelined", {"no_overlap"}),
    "waits_for_every_chunk": (PIPELINED + "        lanes.wait()\n", "pipelined", {"no_overlap"}),
    "all_but_one": (ALL_BUT_ONE, "pipelined", {"no_overlap"}),
    "last_chunk_first": (LAST_CHUNK_FIRST, "pipelined", {"no_overlap"}),
    "scatter_then_gather": (SCATTER_THEN_GATHER, "scatter_all_gather", {"no_overlap"}),
    "one_host_lane": (SCATTER.replace("host(gpu)", "host(0)"), "scatter_all_gather", {"wrong_lane"}),
    "one_peer_lane": (PIPELINED.replace("peer(0, gpu)", "peer(0, 1)"), "pipelined", {"wrong_lane"}),
    "two_parts": (PIPELINED.replace("chunks)", "2)"), "pipelined", {"chunks"}),
    "four_parts": (PIPELINED.replace("chunks)", "4)"), "pipelined", {"chunks"}),
    "one_scattered": (SCATTER.replace("share, chunks", "share, 1"), "scatter_all_gather", {"chunks"}),
    "whole_forward": (WHOLE_FORWARD, "pipelined", {"chunks"}),
    "sends_twice": (PIPELINED.replace("            lanes", "            for _ in '12': lanes"), "pipelined", {"bytes"}),
    "swapped_pull": (PIPELINED.replace(PULL, "source[part], copies[0][part]"), "pipelined", {"swapped"}),
    "swapped_forward": (PIPELINED.replace(FORWARD, "copies[0][part], copies[gpu][part]"), "pipelined", {"swapped"}),
    "no_after": (WITHOUT_AFTER, "pipelined", {"early_forward"}),
    "waits_too_late": (WITHOUT_AFTER + "        lanes.wait()\n", "pipelined", {"early_forward"}),
    "reuse_in_flight": (PIPELINED + REUSE, "pipelined", {"source_reused"}),
    "reuse_then_wait": (PIPELINED + REUSE + "    lanes.wait()\n", "pipelined", {"source_reused"}),
}

RIGHT_ANSWERS = {
    "pipelined": (PIPELINED, "pipelined"),
    "pulls_first": (PULLS_FIRST, "pipelined"),
    "chain_of_gpus": (CHAIN_OF_GPUS, "pipelined"),
    "halves": (EVERY_SECOND, "pipelined"),
    "short_forwards": (SHORT_FORWARDS, "pipelined"),
    "waits_then_forwards": (WAITS_FIRST, "pipelined"),
    "waits_for_the_lane": (WAITS_FIRST.replace("lanes.wait()", "lanes.host(0).wait()"), "pipelined"),
    "waits_at_the_end": (PIPELINED + "    lanes.wait()\n", "pipelined"),
    "reuse_after_wait": (PIPELINED + "    lanes.wait()\n" + REUSE, "pipelined"),
    "reuse_after_the_pulls": (PIPELINED + "    lanes.host(0).wait()\n" + REUSE, "pipelined"),
    "scatter": (SCATTER, "scatter_all_gather"),
    "scatter_ends_in_wait": (SCATTER + "    lanes.wait()\n", "scatter_all_gather"),
    "ring": (RING, "scatter_all_gather"),
}

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """One launch that watches every answer above and the reference solutions."""
    texts = {name: text for name, (text, *_) in (WRONG_ANSWERS | RIGHT_ANSWERS).items()}
    return watched(tmp_path_factory.mktemp("trial"), texts, mib=4)


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_wrong_graph_is_found(trial, name):
    _, exercise, kinds = WRONG_ANSWERS[name]
    verdict = judge(exercise, exercise, f"answers.{name}", trial)
    assert (verdict.outcome, set(verdict.faults)) == (WRONG, kinds), verdict


@pytest.mark.parametrize("name", RIGHT_ANSWERS)
def test_a_right_graph_is_right(trial, name):
    _, exercise = RIGHT_ANSWERS[name]
    verdict = judge(exercise, exercise, f"answers.{name}", trial)
    assert verdict.outcome == RIGHT, verdict


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "chained",
            ["16 chunk times", "reference solution's 5", "0 of 12", "solution's, 9)", "after="],
        ),
        ("waits_for_every_chunk", ["8 chunk times", "reference solution's 5", "0 of 12", "`lanes.wait()`"]),
        ("all_but_one", ["8 chunk times", "1 of 12", "GPU 2", "after="]),
        ("last_chunk_first", ["8 chunk times", "order"]),
        ("one_host_lane", ["lane `host → 0`", "into GPU 1", "`lanes.host(1)`"]),
        ("one_peer_lane", ["lane `0 → 1`", "from GPU 0 into GPU 2", "`lanes.peer(0, 2)`"]),
        ("two_parts", ["2 pieces", "chunks=4"]),
        ("four_parts", ["4 pieces", "chunks=2"]),
        ("whole_forward", ["larger than a chunk"]),
        ("sends_twice", ["GPU 1 receives 2.00 ×"]),
        ("swapped_pull", ["source tensor", "target first"]),
        ("swapped_forward", ["from GPU 1 to GPU 0", "target first"]),
    ],
)
def test_the_message_says_it_in_plain_words(trial, name, words):
    _, exercise, (kind,) = WRONG_ANSWERS[name]
    sentence = judge(exercise, exercise, f"answers.{name}", trial).faults[kind]
    assert [word for word in words if word not in sentence] == [], sentence
    assert "GPU host" not in sentence


def test_more_copies_than_are_judged_make_no_graph(trial, monkeypatch):
    monkeypatch.setattr(exercises, "MOST_COPIES", 16)
    assert judge("pipelined", "pipelined", "answers.pipelined", trial).outcome == RIGHT
    monkeypatch.setattr(exercises, "MOST_COPIES", 15)
    monkeypatch.delattr(exercises, "Graph")
    faults = judge("pipelined", "pipelined", "answers.pipelined", trial).faults
    assert faults == {
        "too_many": "it makes 16 copies with chunks=4, and no more than 15 are judged: copy a chunk at a time"
    }


def test_a_right_answer_stands_beside_the_reference(trial):
    merits = " ".join(judge("pipelined", "pipelined", "answers.chain_of_gpus", trial).merits)
    assert "7 chunk times" in merits and "reference solution's 5" in merits


@pytest.mark.parametrize("own", ["pipelined", "scatter_all_gather"])
def test_the_reference_takes_its_chunks_and_one_forward(trial, own):
    copies = trial.spans[trial.spans["function"] == f"methods.{own}"]
    pieces = trial.plan.chunks * (1 if own == "pipelined" else trial.plan.gpus)
    found = graph.Graph(copies, trial.plan.elements // pieces)
    assert found.chunk_times == found.least_chunk_times == trial.plan.chunks + 1


@pytest.mark.slow
def test_an_answer_that_is_slow_is_not_accused_of_waiting_forever():
    text = PIPELINED.format(name="pipelined").replace(
        "    for part", "    import time\n    time.sleep(60)\n    for part"
    )
    answers.save("broadcast.pipelined", text)
    verdict = check("pipelined", patience_s=3)
    assert verdict.outcome == HUNG
    assert "slow" in verdict.faults["hung"]


def test_a_function_of_another_name_is_said():
    answers.save("broadcast.pipelined", PIPELINED.format(name="pipeline"))
    assert "defines no function `pipelined`" in str(check("pipelined"))
