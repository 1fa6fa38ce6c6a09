"""The student's exercises and the accounts with a mistake: how each is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import ceil, floor, inf
from string import ascii_uppercase
from typing import Any

import pandas as pd

from labkit.course.exercise import brief
from labkit.course.exercises import STRETCH, WARM_UP, Exercise, Exercises
from labkit.course.judging import close, is_number
from labkit.course.lineup import line_up
from labkit.course.verdict import RIGHT, WRONG, Verdict
from labkit.story import units
from lessons.accounting.bugs import ACCOUNTS, LABEL_GB, SYMPTOMS, TOKENS
from lessons.accounting.hints import HINTS
from lessons.accounting.listings import CODES
from lessons.accounting.theory import COURSE_MESH, KINDS, WHOLE, XXL, Mesh, Model, devices, least_tokens, of, times

_EVEN_GIB = 80 * 10**9 / 2**30  # 80 GB exactly, for that is a binary fraction
SIZES = (
    (3276, 80),
    (3276, 95),
    (4096, 1),
    (_EVEN_GIB, 80),
    (75, 80),
    (0.5, 24),
    (1000, 141),
)  # GiB to hold, GB a device
BATCHES = (
    (53248, 16, 4, 2, 1, 4.6e14, 1.8e11),
    (53248, 8, 8, 1, 1, 4.6e14, 1.8e11),
    (28672, 32, 2, 2, 1, 4.6e14, 1.8e11),
    (53248, 16, 4, 1, 2, 1e15, 9e11),
    (16384, 8, 8, 2, 1, 4.6e14, 1.8e11),  # no batch is enough
    (16384, 8, 8, 1, 2, 4.6e14, 1.8e11),  # enough with two axes for activations only
    (16384, 4, 16, 2, 2, 4.6e14, 1.8e11),  # no batch is enough, with two axes for each
)  # d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s
_ARGUMENTS = ("d_ff", "x", "y", "m_x", "m_y", "flop_per_s", "bytes_per_s")
_D_MODEL = 16384  # of any size: it is in every term
_CLOSE = 1e-3
_SAME_ACCOUNT = 0.01
_BITS = 8
_FORGOTTEN = "is a `return` missing?"
_MIXED = "you divided GiB by GB, and these are different units"
# Kind, number for (GiB, GB of one device), what is wrong.
_DEVICE_MISTAKES: tuple[tuple[str, Callable[[float, float], float], str], ...] = (
    ("unrounded", lambda gib, gb: _exact(gib, gb), "the number of devices is whole"),
    ("mixed", lambda gib, gb: gib / gb, _MIXED),
    ("mixed", lambda gib, gb: ceil(gib / gb), _MIXED),
    ("mixed", lambda gib, gb: floor(gib / gb), _MIXED),
    (
        "wrong_way",
        lambda gib, gb: ceil(gib / gb * 10**9 / 2**30),
        "a GiB is more than a GB, so a total has more GB than GiB",
    ),
    ("mixed", lambda gib, gb: round(gib / gb), _MIXED),
    (
        "nearest",
        lambda gib, gb: round(_exact(gib, gb)),
        "that is the nearest whole number, and what is left over may need a device more",
    ),
    (
        "rounded_down",
        lambda gib, gb: floor(_exact(gib, gb)),
        "that is rounded down, so what is left over has no device",
    ),
    (
        "rounded_down",
        lambda gib, gb: max(1, floor(_exact(gib, gb))),
        "that is rounded down, so what is left over has no device",
    ),
    ("one_more", lambda gib, gb: floor(_exact(gib, gb)) + 1, "it comes out even, so no further device is needed"),
    ("upside_down", lambda gib, gb: 1 / _exact(gib, gb), "the device is divided by the total"),
)


def _exact(gib: float, gb: float) -> float:
    return of(gib, "GiB") / of(gb, "GB")


def judge_devices(given: list, sizes: Sequence[tuple[float, float]] = SIZES) -> Verdict:
    """Return the verdict on numbers of devices, one for each of `sizes`: a total in GiB, a label in GB."""
    made = next(
        ((kind, why) for kind, value, why in _DEVICE_MISTAKES if _same(given, [value(*size) for size in sizes])), None
    )
    faults: dict[str, str] = {}
    for (gib, gb), found in zip(sizes, given, strict=True):
        wanted = devices(of(gib, "GiB"), gb)
        if not (is_number(found) and found == wanted):
            kind, why = _no_number(found, "return a number of devices, such as 44") or made or _quotient(gib, gb)
            where = f"for {units.number(gib, 4)} GiB on devices of {gb} GB"
            faults.setdefault(kind, f"{where} it gives {_as_read(found, wanted)}, not {wanted}: {why}")
    merits = ("both sizes are in bytes before they are divided", "the last device counts, however little is on it")
    return Verdict("devices_needed", WRONG if faults else RIGHT, faults, () if faults else merits)


def _same(given: list, wanted: list[float]) -> bool:
    """Say whether all numbers are the wanted ones: single ones may be so by chance."""
    return all(close(found, value, 1e-9) for found, value in zip(given, wanted, strict=True))


def _no_number(found, asked: str) -> tuple[str, str] | None:
    return None if is_number(found) else ("form", _FORGOTTEN if found is None else asked)


def _quotient(gib: float, gb: float) -> tuple[str, str]:
    total, each = of(gib, "GiB"), of(gb, "GB")
    return "wrong", f"the total is {units.count(total)} bytes, and a device holds {units.count(each)} bytes"


def judge_batch(given: list, batches: Sequence[tuple] = BATCHES) -> Verdict:
    """Return the verdict on least batches in tokens, sent in turn, one for each of `batches`; None where none is."""
    faults: dict[str, str] = {}
    for setting, found in zip(batches, given, strict=True):
        mesh, model = Mesh(*setting[1:]), Model(_D_MODEL, setting[0], blocks=1)
        wanted = least_tokens(mesh, model, at_once=False)
        if found is None if wanted == inf else close(found, wanted, _CLOSE):
            continue
        kind, why = _batch_fault(mesh, model, found, wanted)
        right = "None" if wanted == inf else units.count(round(wanted))
        where = ", ".join(f"{name} = {value:g}" for name, value in zip(_ARGUMENTS, setting, strict=True))
        faults.setdefault(kind, f"for {where} it gives {_as_read(found, wanted)}, not {right}: {why}")
    merits = (
        "with this batch or a larger one, computing takes at least as long as communicating",
        "where no batch is enough, it gives None",
    )
    return Verdict("compute_bound_batch", WRONG if faults else RIGHT, faults, () if faults else merits)


def _batch_fault(mesh: Mesh, model: Model, found, wanted: float) -> tuple[str, str]:
    if wanted == inf:
        return "never", "at every batch, activations alone take longer than computing"
    if found is None:
        return "none", "with the batch, computing grows faster than activations, so some batch is enough"
    if not is_number(found):
        return "form", "a number of tokens is asked for"
    one, half = times(mesh, model, 1), mesh.axis_bytes_per_s / 2
    turned = replace(mesh, fsdp_axes=mesh.tensor_axes, tensor_axes=mesh.fsdp_axes)
    transposed = replace(mesh, fsdp=mesh.tensor, tensor=mesh.fsdp)
    mistakes = {
        "a_device": (wanted, ""),
        "no_m_x": (least_tokens(replace(mesh, fsdp_axes=1), model, at_once=False), "`m_x` is left out"),
        "no_m_y": (least_tokens(replace(mesh, tensor_axes=1), model, at_once=False), "`m_y` is left out"),
        "swapped": (least_tokens(turned, model, at_once=False), "`m_x` and `m_y` are swapped"),
        "transposed": (least_tokens(transposed, model, at_once=False), "`x` and `y` are swapped"),
        "one_way": (
            least_tokens(replace(mesh, axis_bytes_per_s=half), model, at_once=False),
            "that takes half of `bytes_per_s`, which counts both directions",
        ),
        "at_once": (
            least_tokens(mesh, model),
            "that is for weights and activations sent at the same time; here they are sent in turn",
        ),
        "added": (
            one.fsdp_s / (one.math_s + one.tensor_s),
            "the time of activations is added to that of computing; both grow with "
            "the batch, on different sides of the equation",
        ),
    }
    for kind, (value, why) in mistakes.items():
        if close(found, value, _CLOSE) and why:
            return kind, why
        if close(found, value / mesh.devices, _CLOSE):
            return kind, "; ".join(filter(None, [why, "that is per device, and all tokens are asked for"]))
    if found > 0 and (spent := times(mesh, model, found)).math_s < spent.fsdp_s + spent.tensor_s:
        share = units.percent(spent.math_s / (spent.fsdp_s + spent.tensor_s))
        return (
            "below",
            f"with that batch, computing takes {share} of the time of communicating: more tokens are needed",
        )
    return "wrong", "with the least batch, computing takes as long as weights and activations together"


def _as_read(found, wanted: float) -> str:
    """Return a number as a reader says it, with as many digits as tell it from the wanted one."""
    if not is_number(found):
        return brief(repr(found))
    if found == round(found):
        return units.count(found)
    text = units.number(found, 5)
    return repr(found) if text == units.number(wanted, 5) or text.replace(" ", "") == str(wanted) else text


check = Exercises(
    "accounting",
    Exercise("devices_needed", SIZES, judge_devices, hints=HINTS["devices_needed"], grade=WARM_UP),
    Exercise("compute_bound_batch", BATCHES, judge_batch, hints=HINTS["compute_bound_batch"], grade=STRETCH),
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def accounts(names: Iterable[str]) -> pd.DataFrame:
    """Return a row per accounting, by letter: GB by kind, devices of 80 GB for their sum, tokens of a batch to run."""
    rows = [ACCOUNTS[name]() for name in names]
    table = pd.DataFrame(rows, index=list(ascii_uppercase[: len(rows)]))
    table[list(KINDS)] = table[list(KINDS)] / units.GB
    return table.rename(columns={kind: f"{kind}_gb" for kind in KINDS}).round(1)


def verdict_of(name: str, account: dict[str, float]) -> Verdict:
    """Return the verdict on one account of XXL: a sentence per fault."""
    faults: dict[str, str] = {}
    for kind, each in WHOLE.items():
        found = account[kind] / XXL.parameters
        if abs(found / each - 1) > _SAME_ACCOUNT:
            counted = f"{kind} take {units.number(found)} bytes per parameter, not {each}"
            faults[kind] = f"{counted}: counted {found / each:g} times"
    per_number = account["activations"] / TOKENS / XXL.kept()
    if abs(per_number / 2 - 1) > _SAME_ACCOUNT:
        why = ", its bits taken for bytes" if abs(per_number / 2 / _BITS - 1) < _SAME_ACCOUNT else ""
        faults["activations"] = f"an activation in bfloat16 takes {units.number(per_number)} bytes, not 2{why}"
    total, room = sum(account[kind] for kind in KINDS), account["devices"] * of(LABEL_GB, "GB")
    if room < total:
        faults["devices"] = (
            f"{account['devices']} devices hold {units.number(room / units.GB, 4)} GB of its own "
            f"{units.number(total / units.GB, 4)}; they would do if the label meant GiB"
            if account["devices"] * of(LABEL_GB, "GiB") >= total
            else f"{account['devices']} devices hold {units.number(room / total, 2)} of its own total"
        )
    one = times(COURSE_MESH, XXL, account["tokens"])
    if one.math_s < one.fsdp_s + one.tensor_s:
        faults["batch"] = (
            f"with {units.count(account['tokens'])} tokens computing takes {units.seconds(one.math_s)} per block and "
            f"communicating {units.seconds(one.fsdp_s + one.tensor_s)}: the bound is a least batch, not a largest one"
        )
    merits = () if faults else ("16 bytes per parameter, 2 per activation, enough devices, a batch above the bound",)
    return Verdict(name, WRONG if faults else RIGHT, faults, merits)


def _rows_of(names: Iterable[str]) -> list[dict[str, Any]]:
    return [{"name": name, "account": ACCOUNTS[name]()} for name in names]


suspects, diagnose, show_suspects = line_up("accounting", SYMPTOMS, _rows_of, lambda row: verdict_of(**row), CODES)
