"""The exercises of lab 14: accumulation for an efficiency, the time of a hierarchical all-reduce."""

from __future__ import annotations

import math
from random import Random

from IPython.display import HTML

from labkit.course.exercises import STRETCH, WARM_UP, Cases, Exercises, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import why
from lessons.beyond_the_node import theory

ACCUMULATIONS = (
    (0.9, 0.1, 0.23),
    (0.5, 0.125, 0.125),
    (0.95, 0.02, 0.05),
    (0.9, 1.0, 0.01),
    (0.8, 0.4, 0.95),
    (0.75, 0.5, 0.5),
)  # efficiency, seconds of computing per micro-batch, seconds of communication per step; two cases come out even
CALLS = (
    (10**9, 2, 8, 3e-6, 300.0, 10e-6, 50.0),
    (10**6, 2, 8, 3e-6, 300.0, 10e-6, 50.0),
    (2**30, 64, 8, 2e-6, 200.0, 15e-6, 400.0),
    (4096, 16, 4, 5e-6, 100.0, 20e-6, 12.5),
    (10**8, 2, 2, 50e-6, 2.0, 100e-6, 0.125),
    (10**8, 3, 1, 50e-6, 2.0, 100e-6, 1.0),
)  # bytes; nodes; GPUs per node; inside a node: s per hop, GB/s; between nodes: s per hop, GB/s


def _exact(efficiency: float, compute_s: float, communication_s: float) -> float:
    return efficiency * communication_s / ((1 - efficiency) * compute_s)


def _accumulations(random: Random) -> list:
    drawn = [(random.uniform(0.6, 0.97), random.uniform(0.02, 0.5), random.uniform(0.05, 1.0)) for _ in range(5)]
    return [*drawn, (0.75, 0.5, 0.5), (random.uniform(0.5, 0.9), 1.0, random.uniform(0.001, 0.01))]


_ACCUMULATION_FOR = compared(
    "accumulation_for",
    theory.least_accumulation,
    (
        Mistake("unrounded", _exact, "micro-batches come whole"),
        Mistake("rounded_down", lambda *case: max(1, math.floor(_exact(*case) + 1e-9)), "rounded down: too few"),
        Mistake("rounded_down", lambda *case: math.floor(_exact(*case) + 1e-9), "rounded down: too few"),
        Mistake("nearest", lambda *case: max(1, round(_exact(*case))), "rounded to the nearest whole number: too few"),
        Mistake("one_more", lambda *case: math.floor(_exact(*case) + 1e-9) + 1, "one less is enough"),
        Mistake(
            "ratio",
            lambda e, c, s: max(1, math.ceil(e * s / c - 1e-9)),
            "efficiency is computing over the whole step, not over communication",
        ),
        Mistake(
            "overhead",
            lambda e, c, s: max(1, math.ceil(s / ((1 - e) * c) - 1e-9)),
            "communication is compared with computing, not with the whole step",
        ),
        Mistake(
            "upside_down",
            lambda e, c, s: theory.least_accumulation(e, s, c),
            "computing and communication are swapped",
        ),
        Mistake(
            "complement",
            lambda e, c, s: max(1, math.ceil((1 - e) * s / (e * c) - 1e-9)),
            "efficiency is the share of computing, not of communication",
        ),
    ),
    result_form="a whole number of micro-batches",
    rule="efficiency is the time of computing over that of the whole step; return the fewest that reach it",
    merit="the step computes often enough per exchange, and not more often than needed",
    inputs=ACCUMULATIONS,
    grade=WARM_UP,
    cases=Cases(_accumulations),
    hints=(
        "Which part of the step grows with the number of micro-batches, and which part stays as it is?",
        "With k micro-batches the step computes k times and communicates once. Efficiency is computing "
        "over the whole step. It grows with k, so look for the first k that is enough.",
        "`k = 1`, and while `k * compute_s / (k * compute_s + communication_s) < efficiency`, add 1. The "
        "closed form is `ceil(efficiency * communication_s / ((1 - efficiency) * compute_s))`, at least 1.",
    ),
)


def _hierarchical(
    whole_bytes: float,
    nodes: int,
    per_node: int,
    inside_alpha_s: float,
    inside_gb_per_s: float,
    link_alpha_s: float,
    link_gb_per_s: float,
) -> float:
    inside, link = theory.Link(inside_alpha_s, inside_gb_per_s), theory.Link(link_alpha_s, link_gb_per_s)
    return theory.Levels(inside, link, nodes, per_node).hierarchical_s(whole_bytes)


def _flat(whole_bytes: float, nodes: int, per_node: int, *lines: float) -> float:
    inside, link = theory.Link(*lines[:2]), theory.Link(*lines[2:])
    return theory.Levels(inside, link, nodes, per_node).flat_s(whole_bytes)


def _between(whole_bytes: float, nodes: int, _: int, *lines: float) -> float:
    return _hierarchical(whole_bytes, nodes, 1, *lines)


def _inside(whole_bytes: float, per_node: int, *lines: float) -> float:
    return _hierarchical(whole_bytes, 1, per_node, *lines)


def _calls(random: Random) -> list:
    return [
        (
            random.choice((4096, 10**6, 2**26, 10**9)),
            random.randint(2, 64),
            random.choice((2, 4, 8)),
            random.uniform(1e-6, 1e-5),
            random.uniform(20, 400),
            random.uniform(5e-6, 1e-4),
            random.uniform(0.1, 400),
        )
        for _ in range(6)
    ]


_HIERARCHICAL_SECONDS = compared(
    "hierarchical_seconds",
    _hierarchical,
    (
        Mistake("flat", _flat, "that is one flat ring of all ranks"),
        Mistake("between_only", _between, "the two phases inside a node are missing"),
        Mistake(
            "no_gather",
            lambda s, n, g, *lines: _between(s, n, g, *lines) + _inside(s, g, *lines) / 2,
            "after the all-reduce each rank has one part: an all-gather inside the node is missing",
        ),
        Mistake(
            "own_link",
            lambda s, n, g, *lines: _inside(s, g, *lines) + _between(s / g, n, g, *lines),
            "the g rings of a node share one link, so together they send S/n per step",
        ),
        Mistake(
            "whole_chunks",
            lambda s, n, g, *lines: _inside(s * g, g, *lines) + _between(s * n, n, g, *lines),
            "each step of a ring sends one chunk, not the whole tensor",
        ),
        Mistake(
            "half",
            lambda s, n, g, *lines: _inside(s, g, *lines) + _between(s, n, g, *lines) / 2,
            "an all-reduce between nodes has 2(n − 1) steps",
        ),
        Mistake(
            "no_latency",
            lambda s, n, g, a, rate, b, link: _hierarchical(s, n, g, 0.0, rate, 0.0, link),
            "every step has its latency α",
        ),
        Mistake(
            "one_latency",
            lambda s, n, g, a, rate, b, link: _hierarchical(s, n, g, 0.0, rate, 0.0, link) + 2 * a + b,
            "every step of a ring has its latency α, not every phase",
        ),
        Mistake(
            "bytes",
            lambda s, n, g, a, rate, b, link: _hierarchical(s, n, g, a, rate / 1e9, b, link / 1e9),
            "a GB is 10⁹ bytes",
        ),
        Mistake(
            "binary",
            lambda s, n, g, a, rate, b, link: _hierarchical(s, n, g, a, rate * 2**30 / 1e9, b, link * 2**30 / 1e9),
            "a GB is 10⁹ bytes, not 2³⁰",
        ),
    ),
    result_form="a number of seconds",
    rule="add three phases; for each, count its steps and the bytes that one link carries in one step",
    merit="three phases, each with its latencies, and the node's link is shared",
    inputs=CALLS,
    grade=STRETCH,
    cases=Cases(_calls),
    hints=(
        "There are three phases. In which of them does a byte leave the node, and who shares the link then?",
        "A reduce-scatter inside has g − 1 steps of S/g. The all-reduces between nodes have 2(n − 1) "
        "steps. In each step g rings send S/g/n through one link, together S/n. An all-gather inside takes "
        "as long as the reduce-scatter.",
        "`inside = (per_node - 1) * (inside_alpha_s + whole_bytes / per_node / (inside_gb_per_s * 1e9))` "
        "and `between = 2 * (nodes - 1) * (link_alpha_s + whole_bytes / nodes / (link_gb_per_s * 1e9))`. "
        "Add `inside` twice.",
    ),
)


check = Exercises("beyond_the_node", _ACCUMULATION_FOR, _HIERARCHICAL_SECONDS)
hint, solution, attempts = check.hint, check.solution, check.attempts


def why_less() -> HTML:
    """Ask why HSDP sends so much less between nodes than FSDP over all GPUs."""
    return why(
        "Both shard everything. Why does HSDP send so much less between nodes?",
        (
            "It gathers weights inside the node",
            "Each node holds all weights, in shards. Between nodes only gradients travel, once per step.",
        ),
        (
            "It shards into more pieces",
            "Into fewer: as many as a node has GPUs. So each GPU holds more than under FSDP.",
        ),
        ("Its gradients are smaller", "They are the same. All of them are exchanged between the nodes."),
    )
