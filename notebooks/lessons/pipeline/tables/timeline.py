"""Rows of lab 03 → timelines of a traced step, their bubbles beside simulated ones, and forecasts of other splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from labkit.provenance import of_run, of_source
from lessons.pipeline.tables.throughput import setting_knobs, throughput
from lessons.pipeline.theory.queues import PAIR, RANK, queue_of, simulate_posted
from lessons.pipeline.theory.schedules import Step, every_split, layers_of, order_of, split_name
from lessons.pipeline.theory.simulator import (
    Span,
    Times,
    bubble,
    closed_form,
    in_flight,
    simulate,
    step_time,
)

if TYPE_CHECKING:
    from labkit.engine.run import Run


BEFORE_USE = "receives just before use"
_POSTED = ("interleaved", "zero_bubble")  # run from lists into which torch puts receives early
_COLUMNS = ["rank", "kind", "stage", "micro_batch", "start_ms", "end_ms"]


def measured_steps(run: Run, **setting: Any) -> list[list[Span]]:
    """Return each traced step of one setting as spans in ms from the moment when the last rank was ready.

    A stream's steps come as one; its micro-batches are numbered through. Transfers (T) are added: see `_transfers`.
    Raises ValueError, naming what was traced, where the setting was not.
    """
    steps = []
    for _, rows in _traced(run, setting).groupby([*setting_knobs(run), "seed", "step"], sort=False):
        rows = rows.sort_values("start_us")
        numbers = rows["micro_batch"]
        if (rows["mode"] == "streaming").all():
            numbers = rows.groupby(["rank", "span", "stage"]).cumcount()
        columns = (rows["rank"], rows["span"], rows["stage"], numbers, rows["start_us"] / 1e3, rows["end_us"] / 1e3)
        steps.append(_transfers([Span(*values) for values in zip(*columns, strict=True)]))
    return steps


def _traced(run: Run, setting: dict[str, Any]) -> pd.DataFrame:
    """Return the run's spans of one setting."""
    spans = run.spans
    for knob, value in setting.items():
        spans = spans[spans[knob] == value]
    if spans.empty:
        traced = run.spans[setting_knobs(run)].drop_duplicates().to_string(index=False) if len(run.spans) else "nothing"
        raise ValueError(f"{setting} was not traced; traced were:\n{traced}")
    return spans


def _transfers(spans: list[Span]) -> list[Span]:
    """Add a T span before each step that needed something from another rank.

    It begins when both sides were ready, the sender's step over and the receiver's step before over, and ends when the
    step starts. What lies before it is waiting.
    """
    last, free, complete = max(span.stage for span in spans), {}, []
    ends = {(("B" if span.kind == "I" else span.kind), span.stage, span.micro_batch): span for span in spans}
    for span in sorted(spans, key=lambda span: span.start):
        step = 1 if span.kind in ("B", "I") else -1
        key = ({"I": "B"}.get(span.kind, span.kind), span.stage + step, span.micro_batch)
        if span.kind in ("F", "B", "I") and 0 <= key[1] <= last and key in ends and ends[key].rank != span.rank:
            begin = max(ends[key].end, free.get(span.rank, 0.0))
            if begin < span.start:
                complete.append(Span(span.rank, "T", span.stage, span.micro_batch, begin, span.start))
        complete.append(span)
        free[span.rank] = max(span.end, free.get(span.rank, 0.0))
    return complete


def _with_waits(spans: list[Span]) -> pd.DataFrame:
    """Return the spans as a table (rank, kind, stage, micro_batch, start_ms, end_ms), every gap filled by a "wait"."""
    end, filled = max(span.end for span in spans), []
    for rank in sorted({span.rank for span in spans}):
        free = 0.0
        for span in sorted((span for span in spans if span.rank == rank), key=lambda span: span.start):
            if span.start > free:
                filled.append(Span(rank, "wait", -1, -1, free, span.start))
            filled.append(span)
            free = max(free, span.end)
        if free < end:
            filled.append(Span(rank, "wait", -1, -1, free, end))
    return pd.DataFrame(filled, columns=_COLUMNS)


def times_of(steps: list[list[Span]]) -> Times:
    """Return the simulator's times (ms): medians, over traced steps and micro-batches, of each stage's spans.

    A transfer is what a rank's first received forward takes: later messages often lie there before they are needed, or
    wait in a queue.
    """
    rows = pd.DataFrame([(number, *span) for number, spans in enumerate(steps) for span in spans])
    rows.columns = ["step", *_COLUMNS]
    rows["ms"] = rows["end_ms"] - rows["start_ms"]
    stage = rows.pivot_table(index="kind", columns="stage", values="ms", aggfunc="median")
    stages = range(rows["stage"].max() + 1)

    def of(kind: str) -> list[float]:
        return [float(stage.loc[kind, s]) if kind in stage.index else 0.0 for s in stages]

    weight = of("W")
    backward = [b + i + w for b, i, w in zip(of("B"), of("I"), weight, strict=True)]
    moved = rows[rows["kind"] == "T"].sort_values("start_ms").groupby(["step", "rank"])["ms"].first()
    update = rows[rows["kind"] == "U"].groupby("rank")["ms"].median()
    return Times(of("F"), backward, weight if any(weight) else (), moved.median() if len(moved) else 0.0, tuple(update))


def order_for(setting: Mapping[str, Any] | pd.Series, steps: int = 1) -> list[list[Step]]:
    """Return our own schedule for a setting (a row with its knobs); forward only in the modes that run no backward."""
    if setting["mode"] != "training":
        return order_of("forward_only", setting["ranks"], setting["micro_batches"] * steps)
    chunks = len(layers_of(setting["split"])) // setting["ranks"]
    return order_of(setting["schedule"], setting["ranks"], setting["micro_batches"], chunks)


def queue_for(run: Run, schedule: str) -> str:
    """Return how messages wait in this run: in torch's queues on GPUs, or received just before use."""
    if run.plan.device != "cuda" or schedule not in _POSTED:
        return BEFORE_USE
    return queue_of(run.node.versions["torch"])


def simulated(setting: Mapping[str, Any] | pd.Series, times: Times, queue: str = BEFORE_USE, steps: int = 1) -> list:
    """Return the spans of a setting's schedule with these times, messages waiting in such a queue."""
    order = order_for(setting, steps)
    return _transfers(simulate(order, times) if queue == BEFORE_USE else simulate_posted(order, times, queue))


def gantt(run: Run, *queues: str, **setting: Any) -> tuple[pd.DataFrame, ...]:
    """Return one traced step as measured, then as simulated with its stage times, every gap filled by a wait.

    It is simulated once with each of `queues`, or with that of the run. Of several settings the first one's last step.
    Facts: ranks, setting (words), way ("measured" or the queue), logged (how many steps), bubble, length_ms.
    """
    knobs = _traced(run, setting).iloc[0]
    steps = measured_steps(run, **{knob: knobs[knob] for knob in setting_knobs(run)})
    streamed = max(span.micro_batch for span in steps[-1]) // knobs["micro_batches"] + 1
    times, queues = times_of(steps), queues or (queue_for(run, knobs["schedule"]),)
    ways = {"measured": steps[-1]} | {queue: simulated(knobs, times, queue, streamed) for queue in queues}
    facts = {name: knobs[name] for name in ("ranks", "schedule", "mode", "split", "micro_batches")}
    return tuple(
        of_run(
            _with_waits(spans),
            run,
            **facts,
            way=way,
            logged=len(steps),
            bubble=bubble(spans),
            length_ms=step_time(spans),
        )
        for way, spans in ways.items()
    )


def queues(run: Run, schedule: str = "interleaved") -> pd.DataFrame:
    """Return the bubble of a schedule measured, and simulated with each way in which messages wait: way, bubble."""
    (setting,) = (row for row in predictions(run).to_dict("records") if row["schedule"] == schedule)
    times = times_of(measured_steps(run, schedule=schedule))
    ways = {way: bubble(simulated(setting, times, way)) for way in (BEFORE_USE, RANK, PAIR)}
    table = pd.DataFrame([("measured", setting["bubble_measured"]), *ways.items()], columns=["way", "bubble"])
    return of_run(table, run, schedule=schedule, torch=run.node.versions["torch"], queue=queue_for(run, schedule))


def predictions(run: Run) -> pd.DataFrame:
    """Return one row per traced fenced or training setting: step and bubble by formula, simulated and measured.

    step_ms is the untraced median; logged_ms the mean of the traced steps; simulated_ms the simulator's, fed with the
    median stage, transfer and update times of the traced steps; `residual` simulated over measured, minus one, and
    `spread_residual` what step_ms's spread makes of it. Bubbles are shares of the ranks' time between the first F and
    the last B: bubble_formula for equal stages, bubble_stages simulated with measured stage times and no transfers,
    bubble_transfers with them, bubble_simulated also with the queue of torch's receives, and bubble_measured;
    bubble_off_points is simulated less measured, in percent. in_flight and in_flight_simulated: most micro-batches
    (stages' worth) kept on rank 0.
    """
    names, rows = setting_knobs(run), []
    measured = throughput(run).set_index(names)
    for knobs, spans in run.spans.groupby(names, sort=False):
        setting = dict(zip(names, knobs, strict=True))
        if setting["mode"] != "streaming":
            rows.append(setting | _prediction(run, setting, measured.loc[knobs]) | {"skew_us": spans["skew_us"].max()})
    return of_run(pd.DataFrame(rows), run)


def _prediction(run: Run, setting: dict[str, Any], measured: pd.Series) -> dict[str, float]:
    """Return what the simulator says of one traced setting, beside what was measured."""
    steps = measured_steps(run, **setting)
    times, chunks = times_of(steps), len(layers_of(setting["split"])) // setting["ranks"]
    spans = simulated(setting, times, queue_for(run, setting["schedule"]))
    simulated_ms, step_ms = step_time(spans), measured["step_ms"]
    bubble_simulated, bubble_measured = bubble(spans), sum(map(bubble, steps)) / len(steps)
    return {
        "step_ms": step_ms,
        "logged_ms": sum(map(step_time, steps)) / len(steps),
        "simulated_ms": simulated_ms,
        "residual": simulated_ms / step_ms - 1,
        "spread_residual": simulated_ms / step_ms * measured["spread_step_ms"] / step_ms,
        "bubble_formula": closed_form(
            setting["schedule"], setting["ranks"], setting["micro_batches"], chunks, _inner_times(times)
        ),
        "bubble_stages": bubble(simulated(setting, replace(times, transfer=0.0))),
        "bubble_transfers": bubble(simulated(setting, times)),
        "bubble_simulated": bubble_simulated,
        "bubble_measured": bubble_measured,
        "bubble_off_points": 100 * (bubble_simulated - bubble_measured),
        "in_flight": max(in_flight(spans)[0] for spans in steps),
        "in_flight_simulated": in_flight(spans)[0],
    }


def _inner_times(times: Times) -> tuple[float, float, float]:
    """Return forward, backward and weight of an inner stage, as a formula for equal stages needs them (a mean).

    The first stage is left out, because its backward has no gradient of an input: all of it is the weights'. The last
    one is left out where there is another.
    """
    inner = slice(1, -1 if len(times.forward) > 2 else None) if len(times.forward) > 1 else slice(None)
    parts = ([*part][inner] for part in (times.forward, times.backward, times.weight or [0.0] * len(times.forward)))
    forward, backward, weight = (sum(part) / len(part) for part in parts)
    return forward, backward, weight


def ideal(
    schedule: str,
    ranks: int = 4,
    micro_batches: int = 8,
    *,
    chunks: int = 2,
    ratio: float = 2.0,
    slow: int = -1,
    slowdown: float = 1.0,
    transfer: float = 0.0,
) -> pd.DataFrame:
    """Return a schedule's spans and waits in units of one rank's forward: facts bubble, in_flight, end, knobs.

    Backward takes `ratio` forwards, half of it for the weights; stage `slow` takes `slowdown` times as long; a transfer
    takes `transfer`. `chunks` counts for interleaved alone, whose stages are as much smaller; in_flight (a number per
    rank) is in micro-batches of a whole rank.
    """
    chunks = chunks if schedule == "interleaved" else 1
    stages = range(ranks * chunks)
    forward = [(slowdown if stage % ranks == slow else 1.0) / chunks for stage in stages]
    times = Times(forward, [ratio * time for time in forward], transfer=transfer)
    spans = _transfers(simulate(order_of(schedule, ranks, micro_batches, chunks), times))
    table = _with_waits(spans)
    kept = in_flight(spans, [1 / chunks] * len(stages))
    facts = {"schedule": schedule, "bubble": bubble(spans), "in_flight": kept, "end": table["end_ms"].max()}
    knobs = ranks, micro_batches, chunks, ratio, slow, slowdown, transfer
    return of_source(table, "simulated", **facts, knobs=knobs)


def split_forecast(run: Run) -> pd.DataFrame:
    """Return each split's measured training step_ms, and the forecast_ms that the even split's own spans allow.

    Layer, embedding and head times are read from the traced stages of the most even split; the stages of each other
    split are added up from them and simulated. `ratio` and `forecast_ratio` are over the even split's step; `error`
    compares the two. Facts: even, and of all `splits` into as many stages the one that is forecast as the `fastest`.
    """
    table = throughput(run)
    table = table[table["mode"] == "training"].reset_index(drop=True)
    even = min(table["split"], key=lambda split: max(layers_of(split)))
    times = times_of(measured_steps(run, split=even, mode="training"))
    base = list(table["split"]).index(even)
    setting = table.iloc[base]

    def forecast(split: str) -> float:
        sizes = layers_of(split)
        order = order_of(setting["schedule"], len(sizes), setting["micro_batches"])
        return step_time(simulate(order, _recut(times, layers_of(even), sizes)))

    splits = [split_name(cut) for cut in every_split(run.plan.layers, setting["ranks"])]
    forecasts = [forecast(split) for split in table["split"]]
    result = table[["split", "mode", "step_ms", "spread_step_ms", "samples_per_s"]].assign(forecast_ms=forecasts)
    result["ratio"] = result["step_ms"] / result["step_ms"].iloc[base]
    result["forecast_ratio"] = result["forecast_ms"] / result["forecast_ms"].iloc[base]
    result["error"] = result["forecast_ratio"] / result["ratio"] - 1
    return of_run(result, run, even=even, splits=len(splits), fastest=min(splits, key=forecast))


def _recut(times: Times, sizes: list[int], other: list[int]) -> Times:
    """Return the times of a split into `other` from those of one into `sizes`: by layer, the ends' extra work kept."""

    def again(stages) -> list[float]:
        inner = list(zip(stages, sizes, strict=True))
        layer = (
            sum(t for t, _ in inner[1:-1]) / sum(n for _, n in inner[1:-1])
            if len(sizes) > 2
            else min(t / n for t, n in inner)
        )
        cut = [layer * size for size in other]
        cut[0] += stages[0] - layer * sizes[0]
        cut[-1] += stages[-1] - layer * sizes[-1]
        return cut

    return Times(again(times.forward), again(times.backward), transfer=times.transfer, update=times.update)
