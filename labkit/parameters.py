"""The parameters of a notebook: size, gpus and seeds, checked in its set-up cell before anything is launched."""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from IPython import get_ipython
from IPython.display import Markdown

from labkit import node
from labkit.engine.errors import ParameterError, PlanError
from labkit.engine.launch_settings import nodes_wanted
from labkit.engine.plan import CONTEXT_BYTES, PARAMETERS, Plan, require_parameters
from labkit.engine.recordings import replay
from labkit.engine.session import AgentSession
from labkit.launching import why_replayed
from labkit.story.words import listed, say

INJECTED = "# Parameters\n"  # how papermill begins the cell that it adds


def check_parameters(lab: ModuleType, *, size: Any, gpus: Any, seeds: Any) -> Markdown:
    """Make every plan of a lesson with the notebook's parameters, and say at which size and on what they will run.

    In a notebook, the agent that will start the workers begins to load torch (LABKIT_WARM=0: with the first launch).
    Raises ParameterError, one sentence, where one of the plans cannot be made, and where papermill set a parameter
    that no notebook has.
    """
    if unknown := _injected_names() - {*PARAMETERS}:
        not_known = f"{', '.join(sorted(unknown))}: no notebook has a parameter of this name"
        raise ParameterError(f"{not_known}; there are {', '.join(PARAMETERS)}")
    try:
        require_parameters(size, gpus, seeds)
        if size == "recorded":
            return say(_recorded_on(lab))
        plans = [kind.sized(size, gpus=gpus, seeds=seeds) for kind in plan_classes(lab)]
    except PlanError as error:
        raise ParameterError(str(error)) from None
    if not plans:
        return say("This lesson launches nothing: `size`, `gpus` and `seeds` change nothing in it.")
    if all(plan.several_nodes for plan in plans) and (why := why_replayed()):
        return say(f"Recorded runs stand in for every launch of this lesson: {why}.")
    if get_ipython() is not None and nodes_wanted() is None:
        AgentSession.warm(*dict.fromkeys(plan.worker for plan in plans if not plan.several_nodes))
    why = f"CPU processes stand in for GPUs: {node.why_no_gpu_is_visible()}." if not node.here().has_gpus else None
    seeds_sentence = f"Seeds per timed point: {seeds}." if isinstance(seeds, int) and seeds else None
    small = size == "full" and all(plan.size == "small" for plan in plans)
    asked = "`size='full'` changes nothing: without a cluster's nodes this lesson runs small." if small else None
    left_out = [f"`{type(plan).__name__}`: {plan.left_out}." for plan in plans if plan.left_out]
    idle = _idle_workers_text(plans), _unused_gpus_text(plans, gpus)
    return say(
        _where(plans), *left_out, *_untried_points(plans), *_of_the_gpus(plans), why, asked, *idle, seeds_sentence
    )


def plan_classes(lab: ModuleType) -> list[type[Plan]]:
    """Return the plans that a lab offers to its notebook; none where the lab launches nothing."""
    try:
        module = importlib.import_module(f"{lab.__name__}.plan")
    except ModuleNotFoundError:
        return []
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Plan)]
    bases = {base for kind in kinds for base in kind.__mro__[1:] if "knobs" not in vars(base)}
    lab_kinds = [kind for kind in kinds if kind not in bases and kind.__module__ == module.__name__]
    return sorted(lab_kinds, key=lambda kind: kind.__name__)


def _recorded_on(lab: ModuleType) -> str:
    """Say that nothing is launched, and where and when the lesson's recorded runs were made."""
    runs = [replay(path) for path in dict.fromkeys(getattr(lab, "RECORDED", {}).values())]
    if not runs:
        return "This lesson launches nothing: `size`, `gpus` and `seeds` change nothing in it."
    dates: dict[str, set[str]] = {}
    for run in runs:
        dates.setdefault(run.machine, set()).add(run.status.get("date", run.node.date))
    made = listed(f"{machine} ({listed(sorted(days))})" for machine, days in dates.items())
    small = ", small size" if all(run.plan.size == "small" for run in runs) else ""
    return f"Nothing is launched: recorded runs stand for every launch of this page. They are from {made}{small}."


def _where(plans: list[Plan]) -> str:
    """Say at which size, and on how many workers, the plans run; by name where they differ."""
    groups: dict[str, list[str]] = {}
    for plan in plans:
        nodes = " on each node" if plan.several_nodes else ""
        groups.setdefault(f"size **{plan.size}**, **{plan.workers_text}{nodes}**", []).append(type(plan).__name__)
    if len(groups) == 1:
        return f"Every launch of this lesson: {next(iter(groups))}."
    return " ".join(f"{', '.join(f'`{name}`' for name in names)}: {what}." for what, names in groups.items())


def _untried_points(plans: list[Plan]) -> Iterator[str]:
    """Say how many points of which plans the GPUs cannot run: for want of memory, or because they are too old."""
    on_gpus = [plan for plan in plans if plan.device == "cuda"]
    gpus = node.here().gpus[: max((plan.gpus for plan in on_gpus), default=0)]
    free = node.free_bytes(gpus) or math.inf
    oldest = min((version for gpu in gpus if (version := gpu.version)), default=(math.inf, 0))
    untried: dict[str, Callable[[Plan, SimpleNamespace], bool]] = {
        f"do not fit in {free / 1e9:.1f} GB": lambda plan, point: plan.needed_bytes(point) > free - CONTEXT_BYTES,
        "need a newer GPU": lambda plan, point: plan.needed_capability(point) > oldest,
    }
    for why, is_untried in untried.items():
        counts = {type(plan).__name__: sum(is_untried(plan, point) for point in plan.points()) for plan in on_gpus}
        if named := [f"{count} of `{name}`" for name, count in counts.items() if count]:
            yield f"Points that are not tried, because they {why}: {listed(named)}."


def _of_the_gpus(plans: list[Plan]) -> Iterator[str]:
    """Say what the GPUs that the plans use cannot do, and which pairs copy through the host."""
    most = max((plan.gpus for plan in plans if plan.device == "cuda"), default=0)
    used = node.here().gpus[:most]
    yield from dict.fromkeys(filter(None, map(node.what_is_lacking, used)))
    if pairs := node.pairs_without_peer_access(used):
        named = listed(f"{a} and {b}" for a, b in pairs)
        yield f"The driver gives GPUs {named} no peer access: what one sends the other goes through the host's memory."


def _idle_workers_text(plans: list[Plan]) -> str | None:
    """Say which plans leave some of their workers without work in every point."""
    fewer = {}
    for plan in plans:
        used = max(getattr(point, "ranks", plan.gpus) for point in plan.points())
        if used < plan.gpus:
            fewer.setdefault((used, plan.gpus), []).append(f"`{type(plan).__name__}`")
    idle_plans = [f"{', '.join(names)} use {used} of {gpus} workers" for (used, gpus), names in fewer.items()]
    return f"Some plans cannot use all of their workers: {'; '.join(idle_plans)}." if idle_plans else None


def _unused_gpus_text(plans: list[Plan], gpus: int) -> str | None:
    """Say that `gpus` asks for more workers than any plan of the lesson takes."""
    most = max(plan.gpus for plan in plans)
    return f"`gpus={gpus}` changes nothing: this lesson uses {most} worker(s)." if gpus > most else None


def _injected_names() -> set[str]:
    """Return the names that papermill set; it adds them to the notebook unchecked, as a cell of assignments."""
    shell = get_ipython()
    cells = shell.user_ns.get("In", []) if shell is not None else []
    trees = [ast.parse(cell) for cell in cells if cell.startswith(INJECTED)]
    return {
        target.id
        for tree in trees
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
