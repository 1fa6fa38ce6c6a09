"""Judge a student's accounting: each usual mistake is told by the numbers that it gives."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, inf, isclose

from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.labs.accounting.theory.models import Model
from labkit.labs.accounting.theory.sizes import devices, of
from labkit.labs.accounting.theory.speed import Mesh, least_tokens, times
from labkit.ui import units

EVEN_GIB = 80 * 10**9 / 2**30  # 80 GB exactly, for that is a binary fraction
SIZES = (
    (3276, 80),
    (3276, 95),
    (4096, 1),
    (EVEN_GIB, 80),
    (75, 80),
    (0.5, 24),
    (1000, 141),
)  # GiB to hold, GB a device
BATCHES = (  # d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s
    (53248, 16, 4, 2, 1, 4.6e14, 1.8e11), (53248, 8, 8, 1, 1, 4.6e14, 1.8e11), (28672, 32, 2, 2, 1, 4.6e14, 1.8e11),
    (53248, 16, 4, 1, 2, 1e15, 9e11), (16384, 8, 8, 2, 1, 4.6e14, 1.8e11),
)  # fmt: skip
SYMBOLS = ("F", "X", "Y", "M_X", "M_Y", "C", "W")
D_MODEL = 16384  # of any size: it is in every term
CLOSE = 1e-3


def judge_devices(given: list) -> Verdict:
    """Give the verdict on numbers of devices, one for each of SIZES: a total in GiB, a label in GB."""
    faults: dict[str, str] = {}
    for (gib, gb), found in zip(SIZES, given, strict=True):
        wanted = devices(of(gib, "GiB"), gb)
        if not _is_number(found) or found != wanted:
            kind, why = _devices_fault(gib, gb, found)
            said = f"for {units.number(gib, 4)} GiB on devices of {gb} GB it gives {_said(found)}, not {wanted}"
            faults.setdefault(kind, f"{said}: {why}")
    merits = ("both sizes are in bytes before they are divided", "the last device counts, however little is on it")
    return Verdict("devices_needed", WRONG if faults else RIGHT, faults, () if faults else merits)


def _devices_fault(gib: float, gb: float, found) -> tuple[str, str]:
    if not _is_number(found):
        return "form", "a whole number of devices is asked for"
    exact = of(gib, "GiB") / of(gb, "GB")
    mistakes = [
        ("unrounded", exact, "devices come whole, rounded up"),
        ("mixed", gib / gb, "you divided GiB by GB"),
        ("mixed", ceil(gib / gb), "you divided GiB by GB"),
        ("wrong_way", ceil(gib / gb * 10**9 / 2**30), "a GiB is more than a GB, so a total has more GB than GiB"),
        ("rounded_down", floor(exact), "what is left over has no place"),
        ("one_more", floor(exact) + 1, "it comes out even, so no further device is needed"),
        ("upside_down", 1 / exact, "the device is divided by the total"),
    ]
    made_so = ((kind, why) for kind, value, why in mistakes if isclose(found, value, rel_tol=1e-9))
    return next(made_so, ("wrong", "bytes over bytes, rounded up"))


def judge_batch(given: list) -> Verdict:
    """Give the verdict on least batches in tokens, in all and in turn, one for each of BATCHES; None where none is."""
    faults: dict[str, str] = {}
    for setting, found in zip(BATCHES, given, strict=True):
        mesh, model = Mesh(*setting[1:]), Model(D_MODEL, setting[0], blocks=1)
        wanted = least_tokens(mesh, model, at_once=False)
        found = None if found != found else found  # a worker's None comes as NaN from a column of numbers
        if found is None if wanted == inf else _near(found, wanted):
            continue
        kind, why = _batch_fault(mesh, model, found, wanted)
        right = "None" if wanted == inf else units.count(round(wanted))
        where = ", ".join(f"{name} = {value:g}" for name, value in zip(SYMBOLS, setting, strict=True))
        faults.setdefault(kind, f"for {where} it gives {_said(found)}, not {right}: {why}")
    merits = ("above its batch computing covers both, below it does not", "where no batch is enough it says so")
    return Verdict("compute_bound_batch", WRONG if faults else RIGHT, faults, () if faults else merits)


def _batch_fault(mesh: Mesh, model: Model, found, wanted: float) -> tuple[str, str]:
    if wanted == inf:
        return "never", "activations alone take longer than computing at every batch"
    if not _is_number(found):
        return "form", "a number of tokens is asked for"
    one, half = times(mesh, model, 1), mesh.axis_bytes_per_s / 2
    turned = replace(mesh, fsdp_axes=mesh.tensor_axes, tensor_axes=mesh.fsdp_axes)
    mistakes = {
        "a_device": (wanted, ""),
        "no_m_x": (least_tokens(replace(mesh, fsdp_axes=1), model, at_once=False), "M_X is left out"),
        "no_m_y": (least_tokens(replace(mesh, tensor_axes=1), model, at_once=False), "M_Y is left out"),
        "swapped": (least_tokens(turned, model, at_once=False), "M_X and M_Y are swapped"),
        "one_way": (least_tokens(replace(mesh, axis_bytes_per_s=half), model, at_once=False), "W has both directions"),
        "at_once": (least_tokens(mesh, model), "that covers the longer of the two, not one after the other"),
        "added": (one.fsdp_s / (one.math_s + one.tensor_s), "activations' time is taken from computing's, not added"),
    }
    for kind, (value, why) in mistakes.items():
        if _near(found, value) and why:
            return kind, why
        if _near(found, value / mesh.devices):
            return kind, "; ".join(filter(None, [why, "that is a device's, and all tokens are asked for"]))
    if found > 0 and (spent := times(mesh, model, found)).math_s < spent.fsdp_s + spent.tensor_s:
        share = units.percent(spent.math_s / (spent.fsdp_s + spent.tensor_s))
        return (
            "below",
            f"there computing takes {share} of communicating's time: the bound is a least batch, not a most",
        )
    return "wrong", "4BDF/(XYC) is to be 4DF/(YWM_X) + 4BD/(XWM_Y)"


def _near(found, value: float) -> bool:
    return _is_number(found) and isclose(found, value, rel_tol=CLOSE)


def _said(found) -> str:
    return units.number(found, 5) if _is_number(found) else repr(found)


def _is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
