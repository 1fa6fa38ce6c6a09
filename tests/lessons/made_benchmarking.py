"""Runs of lab 06 made by hand: an H200 whose host launches a kernel every 6 µs, its clocks and its profiler."""

from made import CPU, gpu_node, write_run

from labkit.theory.transformer import NAMES, forward_flop
from lessons.benchmarking.plan import MODES, PHASES, REFERENCE_LAYERS, VARIANTS, Launches, Profiles, Steps, Trial
from lessons.benchmarking.theory import FORWARDS, attention_work

HOST_US, FIXED_US, KERNELS = 6.0, 100.0, 25  # a launch; a phase's rest, of Steps; kernels a layer
RATES = {"float32": 45e12, "tf32": 250e12, "autocast": 500e12}  # FLOP/s that the GPU reaches
FUSION = 1.4  # times as fast as the same work in more kernels


def _write(folder, plan, rows, device):
    return write_run(folder, plan, gpu_node(1) if device == "cuda" else CPU, [(0, row) for row in rows])


def _knobs(point):
    return dict(vars(point))


def _times(ms, warm_ups, repeats, first=1.0):
    """Gives the iterations of one phase: the first `first` times as long, the others 1 % around `ms`."""
    for iteration in range(warm_ups + repeats):
        factor = first if iteration == 0 else 1 + 0.01 * (iteration % 3 - 1)
        yield {"iteration": iteration, "warm_up": iteration < warm_ups, "ms": ms * factor, "sm_mhz": 1980.0}


def phase_ms(plan, model, precision, mode, phase, *, host_us=HOST_US, fusion=FUSION):
    """Gives what a phase takes: the longer of the host's launches and the GPU's work."""
    hidden, _, layers, _ = plan.dimensions(model)
    times = FORWARDS[phase]
    gpu = times * forward_flop(plan.shape(model), hidden, plan.sequence, plan.samples) / RATES[precision] * 1e3
    gpu += 4.0 if phase == "step" and plan.size == "full" else 0.0
    gpu /= fusion if mode.startswith("compiled") else 1
    host = (FIXED_US + times * KERNELS * layers * host_us) / 1e3
    host = 0.0 if mode.endswith("graph") else host / (3 if mode == "compiled" else 1)
    return max(host, gpu), host


def _not_tried(plan, point, free_gb):
    """Gives the row of a point that needs more than is free; none where it fits."""
    needed = plan.needed_bytes(point)
    row = {"status": "does not fit", "needed_bytes": needed, "free_bytes": free_gb * 1e9}
    return [_knobs(point) | row] if needed > free_gb * 1e9 else []


def steps_run(folder, *, device="cuda", size="full", first=40.0, free_gb=150, **hardware):
    """Writes a Steps run; `first` is the factor of the very first iteration."""
    plan = _plan(Steps, device, size)
    rows = []
    for point in plan.points():
        if not_tried := _not_tried(plan, point, free_gb):
            rows += not_tried
            continue
        for phase in PHASES if point.mode == "eager" else ("forward", "step"):
            ms, host = phase_ms(plan, point.model, point.precision, point.mode, phase, **hardware)
            slow = first if (point.point, phase) == (0, "forward") else 1.5
            for row in _times(ms, *plan.often(point.precision).values(), slow):
                rows.append(_knobs(point) | {"entry": "phase", "phase": phase, "enqueue_ms": host or 0.01} | row)
    return _write(folder, plan, rows, device)


def _plan(kind, device, size, **knobs):
    small = kind.SMALL if size == "small" else {}
    return kind(device=device, size=size, **small, **knobs)


def launches_run(folder, *, device="cuda", size="full", host_us=HOST_US, off=1.0, free_gb=150):
    """Writes a Launches run; `off` multiplies the measured time of the smallest model."""
    plan, rows = _plan(Launches, device, size), []
    for point in plan.points():
        if not_tried := _not_tried(plan, point, free_gb):
            rows += not_tried
            continue
        kernels = KERNELS * point.layers + 8
        host = kernels * host_us / 1e3
        gpu = 0.002 * kernels + 1e-9 * point.layers * point.hidden**2 * 12
        if point.profiled:
            counts = {"kernels": kernels, "busy_ms": 0.9 * gpu}
            rows.append(_knobs(point) | {"entry": "kernels"} | counts)
            continue
        knobs = _knobs(point) | {"entry": "launch"}
        ms = max(host, gpu) * (off if point.model == "small" else 1.0)
        reference_ms = (KERNELS * REFERENCE_LAYERS + 8) * host_us / 1e3
        launched = {"mode": "eager", "enqueue_ms": host, "reference_ms": reference_ms}
        for row in _times(ms, plan.warm_ups, plan.repeats):
            rows.append(knobs | launched | row)
        if device == "cuda":
            rows += [knobs | {"mode": "graph", "enqueue_ms": 0.01} | row for row in _times(gpu, 3, plan.repeats)]
    return _write(folder, plan, rows, device)


_SHARES = {"matmul": 0.6, "elementwise": 0.2, "attention": 0.1, "copy": 0.1}


def profiles_run(folder, *, device="cuda", size="full", apart=0.0, softmax_us=4.0, **knobs_of_plan):
    """Writes a Profiles run: the profiler's window is `apart` off the clock, products take 90 %."""
    plan, rows = _plan(Profiles, device, size, **knobs_of_plan), []
    for point in plan.points():
        knobs = _knobs(point)
        for phase in PHASES:
            ms, _ = phase_ms(plan, point.model, point.precision, "eager", phase)
            if not point.profiled:
                rows.append(knobs | {"entry": "plain", "phase": phase, "plain_ms": ms})
                continue
            clocks = {"clock_ms": 1.1 * ms, "window_ms": 1.1 * ms * (1 + apart), "busy_ms": 0.5 * ms}
            rows.append(knobs | {"entry": "account", "phase": phase, "kernels": 100} | clocks)
            shares = dict(_SHARES)
            if phase == "step":
                shares |= {"matmul": 0.4, "optimizer": 0.2}
            for family, share in shares.items():
                what = {"kernel": f"{family}_kernel", "family": family, "calls": 40, "total_us": 500 * ms * share}
                rows.append(knobs | {"entry": "kernel", "phase": phase} | what)
            flop = FORWARDS[phase] * forward_flop(
                plan.shape(point.model), plan.dimensions(point.model)[0], plan.sequence, plan.samples
            )
            if phase == "both":
                continue
            operators = {"aten::mm": (flop, flop / 100), "aten::mul": (1e8, 12e8), "aten::copy_": (0, 1e8)}
            for operator, (due, moved) in operators.items():
                us = {"aten::mm": 900 * ms, "aten::mul": 400.0, "aten::copy_": 10.0}[operator]
                counts = {"calls": 10, "total_us": us, "flop": due, "moved_bytes": moved}
                rows.append(knobs | {"entry": "operator", "phase": phase, "operator": operator} | counts)
        if not point.profiled:
            continue
        hidden, _, _, heads = plan.dimensions(point.model)
        width = 2 if point.precision == "autocast" else 4
        parts = attention_work(plan.samples, heads, plan.sequence, hidden // heads, width)
        for part, due in parts.items():
            us = softmax_us if part == "softmax" else 4.0
            rows.append(knobs | {"entry": "attention", "part": part, "us": us, **due})
        if f"{point.model} {point.precision}" in plan.drawn:
            rows += [knobs | span for span in _spans(device)]
    return _write(folder, plan, rows, device)


def _spans(device):
    for number in range(12):
        start = 20.0 * number
        made = {"what": "mm", "family": "matmul"}
        yield {"span": "operator", "lane": "host", "start_us": start, "end_us": start + 18, **made}
        if device == "cuda":
            yield {"span": "launch", "lane": "host", "start_us": start + 4, "end_us": start + 9, **made}
            yield {"span": "kernel", "lane": "GPU", "start_us": start + 10, "end_us": start + 14, **made}


SHOWN = {  # what each benchmark with a bug shows
    "right": {},
    "unsynchronised": {"in_flight": 8, "reported_ms": 0.1},
    "first_inside": {"steps_before": 0, "first_times": 30.0, "reported_ms": 20.0},
    "dropout_on": {"loss_apart": 0.02},
}
_RIGHT = {
    "reported_ms": 5.0,
    "true_ms": 5.0,
    "first_times": 1.0,
    "in_flight": 0,
    "steps_before": 3,
    "loss_apart": 0.0,
}


def trial_run(folder):
    """Writes a Trial run."""
    plan = Trial(device="cuda", variants=VARIANTS, size="full")
    rows = [_knobs(point) | {"entry": "trial"} | _RIGHT | SHOWN[point.variant] for point in plan.points()]
    return _write(folder, plan, rows, "cuda")


__all__ = ["MODES", "NAMES", "SHOWN", "launches_run", "profiles_run", "steps_run", "trial_run"]
