"""A launch on this node: have workers started, follow them, and give every row back or one clear error."""

from __future__ import annotations

from labkit import node
from labkit.engine.bars import Bars
from labkit.engine.errors import NotEnoughGpus, NotStarted
from labkit.engine.interrupts import Interrupts
from labkit.engine.launches import Launches, measure
from labkit.engine.plan import Plan
from labkit.engine.receipt import Receipt
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run


def launch_here(plan: Plan, *, patience_s: float, limit_s: float, progress: bool, debug: bool = False) -> Run:
    """Run the plan on GPUs or CPU processes of this node, as `labkit.launching.launch` says."""
    here = node.here()
    _require_gpus(plan, here)
    reservation, bars = Reservation(plan, here, first_only=debug), Bars(plan, progress)
    with Interrupts() as interrupts:
        try:
            _wait_for_gpus(reservation, interrupts, bars, limit_s)
            run = Run.create(plan, reservation.node)
            if debug:
                from labkit.engine.debug import measure_here

                return measure_here(run)
            receipt = Receipt(run, reservation)
            measure(Launches(run, receipt, bars, patience_s=patience_s, limit_s=limit_s), interrupts)
        finally:
            with interrupts.later():
                reservation.release()
                bars.close()
    return run


def _wait_for_gpus(reservation: Reservation, interrupts: Interrupts, bars: Bars, limit_s: float) -> None:
    try:
        reservation.take(limit_s, bars.show_waiting)
    except KeyboardInterrupt:
        with interrupts.later():
            reservation.release()
        raise NotStarted("interrupted while it waited for GPUs; nothing was started") from None
    finally:
        bars.remove_line()


def _require_gpus(plan: Plan, here: node.Node) -> None:
    if plan.device == "cuda" and plan.gpus > len(here.gpus):
        shown = f"this node shows {len(here.gpus)}; use replay() for a recorded run"
        raise NotEnoughGpus(f"the plan wants {plan.gpus} GPU(s), {shown}")
