"""What `make card` launches: per lab the few points that its key figures need, one launch after the other."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from typing import Any

from labkit import node
from labkit.card.readings import card_plans, figures_of, readings_of_runs, soak_plans
from labkit.engine.errors import RunError
from labkit.engine.run import Run
from labkit.engine.session import AgentSession
from labkit.launching import launch
from labkit.report.record import CardRuns

LIMIT_S = 300.0  # of one launch: on a sound node each takes seconds


def measure_card(
    tell: Callable[[str], Any],
    *,
    labs: Container[str] | None = None,
    shown: Container[tuple[str, str]] = (),
    progress: bool = False,
    soak_minutes: int = 0,
) -> CardRuns:
    """Launch what the card needs of these labs (all, if None), and return what the runs showed.

    `soak_minutes`: at the end, load all GPUs for so long.

    `shown`: the figures (lab, name) that other runs show already; a plan that shows no other one is left out.

    A launch that fails costs its own lab's figures: its sentence says why. An interrupt ends the rest.
    """
    begin, plans = time.monotonic(), [plan for plan in card_plans() if labs is None or plan.lab in labs]
    plans = [plan for plan in plans if any(figure not in shown for figure in figures_of(plan))]
    if node.here().has_gpus:  # where CPU processes would stand in for GPUs, there is nothing to judge
        plans = [plan for plan in plans if plan.device == "cuda"]
    plans += soak_plans(soak_minutes) if soak_minutes else []
    result = CardRuns(started=datetime.now().isoformat(timespec="seconds"))
    with _one_agent(plans):
        for number, plan in enumerate(plans, 1):
            at = time.monotonic()
            try:
                ending = _measure(plan, result, progress)
            except KeyboardInterrupt:
                result.why_not |= {later.lab: "interrupted" for later in plans[number - 1 :]}
                result.problems.append("the measurement of the card was interrupted")
                break
            tell(f"[{number}/{len(plans)}] {plan.lab}: {ending}, {time.monotonic() - at:.1f} s")
    result.seconds = time.monotonic() - begin
    return result


@contextmanager
def _one_agent(plans: Sequence[Any]) -> Iterator[None]:
    """Keep one agent that knows the workers of all plans: a new one per lab took 12 to 19 s each on 2 × H200."""
    with ExitStack() as stack:
        if plans:
            with suppress(OSError):  # each launch tries again, and tells why none starts
                stack.enter_context(AgentSession.borrow(*dict.fromkeys(plan.worker for plan in plans)))
        yield


def _measure(plan: Any, result: CardRuns, progress: bool) -> str:
    """Measure one plan, add its readings, and return "ok" or why it failed, in one sentence."""
    try:
        run: Run = _run_of_plan(plan, progress)
    except (RunError, OSError, ValueError) as error:  # GPUs that are lost, taken or too few; no room; a wrong knob
        sentence = (getattr(error, "sentence", "") or str(error)).splitlines()[0]
        result.why_not[plan.lab] = sentence
        result.problems.append(f"{plan.lab} was not measured: {sentence}")
        return f"failed: {sentence}"
    if run.plan.name == "soak":
        result.soak = run.folder.name
    readings, problems = readings_of_runs([run])
    result.readings += [reading.record() for reading in readings]
    result.problems += problems
    return "ok"


def _run_of_plan(plan: Any, progress: bool) -> Run:
    if module := getattr(plan, "measured_by", ""):
        return importlib.import_module(module).measure(plan)
    return launch(plan, limit_s=LIMIT_S + 60 * getattr(plan, "minutes", 0), progress=progress)
