"""The exercises of lab 12: whole devices in one unit, the least compute-bound batch, and accounts with a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil, floor, inf
from random import Random
from string import ascii_uppercase
from typing import Any

import pandas as pd
from IPython.display import HTML

from labkit.course.exercises import STRETCH, WARM_UP, Cases, Exercises, compared
from labkit.course.judging import Mistake
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from labkit.theory.sizes import GB
from lessons.accounting.bugs import ACCOUNTS, LABEL_GB, SYMPTOMS, TOKENS
from lessons.accounting.theory import (
    KINDS,
    NODE,
    WHOLE,
    XXL,
    Mesh,
    Model,
    bytes_of,
    devices,
    least_tokens,
    times,
)

_EVEN_GIB = 80 * 10**9 / 2**30  # 80 GB exactly, for that is a binary fraction
SIZES = ((3276, 80), (3276, 95), (4096, 1), (_EVEN_GIB, 80), (75, 80), (0.5, 24), (1000, 141))  # GiB, GB a device
BATCHES = (  # d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s
    (53248, 16, 4, 2, 1, 4.6e14, 1.8e11),
    (53248, 8, 8, 1, 1, 4.6e14, 1.8e11),
    (28672, 32, 2, 2, 1, 4.6e14, 1.8e11),
    (53248, 16, 4, 1, 2, 1e15, 9e11),
    (16384, 8, 8, 2, 1, 4.6e14, 1.8e11),  # no batch is enough
    (16384, 8, 8, 1, 2, 4.6e14, 1.8e11),  # enough with two axes for activations only
    (16384, 4, 16, 2, 2, 4.6e14, 1.8e11),  # no batch is enough, with two axes for each
    (16384, 8, 8, 1, 1, 3.9e14, 1.8e11),  # no batch is quite enough
    (16384, 8, 8, 1, 1, 3.5e14, 1.8e11),  # a large one just is
)
_D_MODEL = 16384  # of any size: it is in every term
_SAME_ACCOUNT = 0.01
_BITS = 8


def _sizes(random: Random) -> list:
    """Return totals that need one device, a little more or less than a number of them, or that number exactly."""
    labels = (24, 40, 48, 80, 95, 141)
    drawn = [(random.randint(60, 20_000), random.choice(labels)) for _ in range(6)]
    drawn += [(random.uniform(0.2, 0.9), 24), (2 ** random.randint(1, 6) * _EVEN_GIB, 80)]
    for devices_due in (random.randint(2, 9) + 0.005, random.randint(60, 200) + 0.005, random.randint(60, 200) - 0.01):
        label = random.choice(labels)
        drawn.append((devices_due * label * 10**9 / 2**30, label))
    return drawn


def _batches(random: Random) -> list:
    """Return meshes where computing a token takes some times as long as its activations: longer, or not.

    One least batch ends on half a token.
    """
    drawn = []
    for least, most, axes in (
        *((0.93, 0.97, (1, 2)), (0.3, 0.9, (2, 2)), (1.03, 1.07, (2, 1))),
        *((1.5, 4.0, axes) for axes in ((1, 2), (2, 1), (1, 1))),
    ):
        width, x, y = random.choice((16384, 28672, 53248)), random.choice((4, 8, 16, 32)), random.choice((2, 4, 8))
        bytes_per_s = random.choice((1.8e11, 4.5e11, 9e11))
        flop_per_s = float(f"{width * bytes_per_s * axes[1] / y / random.uniform(least, most):.4g}")
        drawn.append((width, x, y, *axes, flop_per_s, bytes_per_s))
    width, x, y, bytes_per_s, batch = 28672, 16, 4, 4.5e11, random.randint(2_000, 90_000) + 0.5
    flop_per_s = width / (y / bytes_per_s + width * x / (bytes_per_s * batch))
    return [*drawn, (width, x, y, 1, 1, flop_per_s, bytes_per_s)]


def _quotient(gib: float, gb: float) -> float:
    return bytes_of(gib, "GiB") / bytes_of(gb, "GB")


_MIXED = "that divides GiB by GB, and these are different units"
_DOWN = "that is rounded down, so what is left over has no device"
_DEVICES_NEEDED = compared(
    "devices_needed",
    lambda gib, gb: devices(bytes_of(gib, "GiB"), gb),
    (
        Mistake("unrounded", _quotient, "the number of devices is whole"),
        *(
            Mistake("mixed", lambda gib, gb, whole=whole: whole(gib / gb), _MIXED, True)
            for whole in (float, ceil, floor, round)
        ),
        Mistake(
            "wrong_way",
            lambda gib, gb: ceil(gib / gb * 10**9 / 2**30),
            "a GiB is more than a GB, so a total has more GB than GiB",
            throughout=True,
        ),
        Mistake(
            "nearest",
            lambda gib, gb: round(_quotient(gib, gb)),
            "that is the nearest whole number, and what is left over may need a device more",
            throughout=True,
        ),
        Mistake("rounded_down", lambda gib, gb: floor(_quotient(gib, gb)), _DOWN, True),
        Mistake("rounded_down", lambda gib, gb: max(1, floor(_quotient(gib, gb))), _DOWN, True),
        Mistake(
            "one_more",
            lambda gib, gb: floor(_quotient(gib, gb)) + 1,
            "where it comes out even, no further device is needed",
            throughout=True,
        ),
        Mistake("upside_down", lambda gib, gb: 1 / _quotient(gib, gb), "the device is divided by the total"),
    ),
    result_form="a number of devices, such as 44",
    rule="bring both sizes to bytes, divide, and round up",
    merit="both sizes are in bytes before they are divided, and the last device counts, however little is on it",
    inputs=SIZES,
    grade=WARM_UP,
    cases=Cases(_sizes),
    hints=(
        "A GiB is 2³⁰ bytes, a GB is 10⁹ bytes. How many GB are 3 276 GiB?",
        "Convert both sizes to bytes. Divide, and round up: the last device counts even if little is on it.",
        "`math.ceil(total_gib * 2**30 / (device_gb * 10**9))`.",
    ),
)


def _least_batch(*setting: Any, together: bool = False, **changed: Any) -> float | None:
    """Return the least batch of a setting as asked for: sent in turn, None where no batch is enough."""
    d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s = setting
    mesh = Mesh(x, y, flop_per_s, bytes_per_s, torus=True, fsdp_axes=m_x, tensor_axes=m_y)
    least = least_tokens(replace(mesh, **changed), Model(_D_MODEL, d_ff, blocks=1), together)
    return None if least == inf else least


def _per_device(wrong: Callable[..., float | None]) -> Callable[..., float | None]:
    return lambda *setting: (least := wrong(*setting)) and least / (setting[1] * setting[2])


def _unchecked_batch(sign: int) -> Callable[..., float]:
    """Return how the batch comes out without asking whether there is one, activations times `sign`."""

    def batch(d_ff, x, y, m_x, m_y, flop_per_s, bytes_per_s) -> float:
        computing, activations = d_ff / (x * y * flop_per_s), 1 / (x * bytes_per_s * m_y)
        return d_ff / (y * bytes_per_s * m_x) / (computing - sign * activations)

    return batch


_NEVER = "activations alone take longer than computing, so no batch is enough: return None"
_EACH = "that is per device, and all tokens are asked for"
_WRONG_BATCHES: dict[str, tuple[Callable[..., Any], str]] = {
    "no_m_x": (lambda *setting: _least_batch(*setting, fsdp_axes=1), "`m_x` is left out"),
    "no_m_y": (lambda *setting: _least_batch(*setting, tensor_axes=1), "`m_y` is left out"),
    "swapped": (
        lambda f, x, y, m_x, m_y, *rates: _least_batch(f, x, y, m_y, m_x, *rates),
        "`m_x` and `m_y` are swapped",
    ),
    "transposed": (lambda f, x, y, *rest: _least_batch(f, y, x, *rest), "`x` and `y` are swapped"),
    "one_way": (
        lambda *setting: _least_batch(*setting, bytes_per_s=setting[-1] / 2),
        "that takes half of `bytes_per_s`, which counts both directions",
    ),
    "together": (
        _unchecked_batch(0),
        "that is for weights and activations sent at the same time; here they are sent in turn",
    ),
    "added": (
        _unchecked_batch(-1),
        "the time of activations is added to that of computing; both grow with the batch, on different sides of the "
        "equation",
    ),
}
_COMPUTE_BOUND_BATCH = compared(
    "compute_bound_batch",
    _least_batch,
    (
        Mistake("never", _unchecked_batch(1), _NEVER),
        *(Mistake("never", lambda *setting, none=none: _least_batch(*setting) or none, _NEVER) for none in (0, inf)),
        Mistake("none", lambda *_: None, "computing grows faster than activations, so some batch is enough"),
        *(
            Mistake(
                "rounded",
                lambda *setting, whole=whole: (least := _least_batch(*setting)) and whole(least),
                "the batch is not to be rounded",
            )
            for whole in (ceil, floor, round)
        ),
        Mistake("a_device", _per_device(_least_batch), _EACH),
        *(Mistake(kind, wrong, reason) for kind, (wrong, reason) in _WRONG_BATCHES.items()),
        *(Mistake(kind, _per_device(wrong), f"{reason}; {_EACH}") for kind, (wrong, reason) in _WRONG_BATCHES.items()),
    ),
    result_form="a number of tokens, or None",
    rule="with the least batch computing takes as long as weights and activations together; without one, it is None",
    merit="from this batch on computing covers communication, and where no batch is enough, it gives None",
    inputs=BATCHES,
    grade=STRETCH,
    cases=Cases(_batches),
    hints=(
        "Write the three times down as this lesson does. Which of them grow with the batch B, and which do not?",
        "Computing and activations grow with B, weights do not. Set computing equal to activations plus weights, "
        "and solve for B. If activations grow as fast as computing, or faster, no batch is enough.",
        "Divide all terms by 4·D: `computing = d_ff / (x * y * flop_per_s)` and `activations = 1 / (x * "
        "bytes_per_s * m_y)`, both per token, and `weights = d_ff / (y * bytes_per_s * m_x)`. The batch is "
        "`weights / (computing - activations)`.",
    ),
)

check = Exercises("accounting", _DEVICES_NEEDED, _COMPUTE_BOUND_BATCH)
hint, solution, attempts = check.hint, check.solution, check.attempts


def accounts(names: Iterable[str]) -> pd.DataFrame:
    """Return a row per account, by letter: GB by kind, devices of 80 GB for their sum, tokens of a batch to run."""
    rows = [ACCOUNTS[name]() for name in names]
    table = pd.DataFrame(rows, index=list(ascii_uppercase[: len(rows)]))
    table[list(KINDS)] = table[list(KINDS)] / GB
    return table.rename(columns={kind: f"{kind}_gb" for kind in KINDS}).round(1).astype({"tokens": int})


def verdict_of(name: str, account: dict[str, float]) -> Verdict:
    """Return the verdict on one account of XXL: a sentence per fault."""
    faults: dict[str, str] = {}
    for kind, each in WHOLE.items():
        counted = account[kind] / XXL.parameters
        if abs(counted / each - 1) > _SAME_ACCOUNT:
            faults[kind] = (
                f"{kind} take {units.number(counted)} bytes per parameter, not {each}: {counted / each:g} times"
            )
    per_number = account["activations"] / TOKENS / XXL.kept()
    if abs(per_number / 2 - 1) > _SAME_ACCOUNT:
        cause = ", its bits taken for bytes" if abs(per_number / 2 / _BITS - 1) < _SAME_ACCOUNT else ""
        faults["activations"] = f"an activation in bfloat16 takes {units.number(per_number)} bytes, not 2{cause}"
    total, room = sum(account[kind] for kind in KINDS), account["devices"] * bytes_of(LABEL_GB, "GB")
    if room < total:
        enough = account["devices"] * bytes_of(LABEL_GB, "GiB") >= total
        if_gib = "; they would do if the label meant GiB" if enough else ""
        sizes = [f"{units.number(size / GB, 4)} GB" for size in (room, total)]
        faults["devices"] = f"{account['devices']} devices hold {sizes[0]} of its own {sizes[1]}{if_gib}"
    block = times(NODE, XXL, account["tokens"])
    math_s, sent_s = block.math_s, block.fsdp_s + block.tensor_s
    if math_s < sent_s:
        faults["batch"] = (
            f"with {units.count(account['tokens'])} tokens computing takes {units.seconds(math_s)} per block and "
            f"communicating {units.seconds(sent_s)}: the bound is a least batch, not a largest one"
        )
    merit = "16 bytes per parameter, 2 per activation, enough devices, a batch above the bound"
    return Verdict.of_faults(name, faults, merit)


_RIGHT = """
def account(parameters, tokens):
    held = {
        "parameters": 4 * parameters,
        "gradients": 4 * parameters,
        "states": 8 * parameters,
        "activations": 2 * kept_numbers(tokens),
    }
    total = sum(held.values())
    devices = ceil(total / (80 * 10**9))
    batch = least_compute_bound_tokens() * 1.25
    return held, devices, batch
"""
_CODES = with_bugs(
    _RIGHT,
    {
        "mixed_units": [("ceil(total / (80 * 10**9))", "ceil(total / 2**30 / 80)")],
        "gradients_twice": [('"gradients": 4 *', '"gradients": 8 *')],
        "bits_for_bytes": [("2 * kept_numbers", "16 * kept_numbers")],
        "upside_down": [("least_compute_bound_tokens() * 1.25", "least_compute_bound_tokens() / 1.25")],
    },
)


def _table_of(names: Iterable[str]) -> pd.DataFrame:
    return pd.DataFrame([{"name": name, "account": ACCOUNTS[name]()} for name in names])


suspects, diagnose, show_suspects = line_up("accounting", SYMPTOMS, _table_of, lambda row: verdict_of(**row), _CODES)


def why_one_unit() -> HTML:
    """Ask why a report counts fewer devices for the same bytes."""
    return why(
        "A report needs 41 GPUs of 80 GB for the same 3 276 GiB. What did it do?",
        ("It divided GiB by GB", "3 276 / 80 is 40.95. A GiB is 7 % more than a GB, and here that is three GPUs."),
        ("It left the gradients out", "Then a quarter of the bytes would be missing: 33 GPUs would be enough."),
        ("It counted 81 559 MiB per GPU", "An H100's driver says so. That gives 42 GPUs, not 41."),
    )
