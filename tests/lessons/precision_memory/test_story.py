"""Each verdict of lab 07 follows its table: said where it holds, its opposite where it does not."""

import pandas as pd
import pytest

from labkit.engine.recordings import replay
from labkit.provenance import fact, made_from, of_source
from lessons import precision_memory
from lessons.precision_memory import tables
from lessons.precision_memory.theory.floats import WAYS, running

NAN = float("nan")


def made(rows, source: str = "measured here, made by hand", **facts) -> pd.DataFrame:
    return of_source(pd.DataFrame(rows), source, **facts)


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in precision_memory.RECORDED.items()}


def peaks(ratio: float, unexplained: float = 0.01, **facts) -> pd.DataFrame:
    rows = [
        {"precision": precision, "sequence": sequence, "phase": phase, "peak": peak, "unexplained_share": unexplained}
        for precision, peak in (("float32", 100.0), ("bfloat16", 100.0 * ratio))
        for sequence in (128, 256)
        for phase in ("first step", "steady step")
    ]
    return made(rows, **facts)


@pytest.mark.parametrize(
    ("ratio", "said"), [(0.83, "do not halve the memory**: mixed precision needs 83 %"), (0.5, "about")]
)
def test_not_half(ratio, said):
    assert said in precision_memory.not_half(peaks(ratio)).data


@pytest.mark.parametrize(("copies", "why"), [(9.0, True), (7.0, False)])
def test_more_than_float32_has_its_reason_where_the_copies_outweigh(copies, why):
    table = peaks(1.1)
    narrow = table["precision"] == "bfloat16"
    table["activations"], table["copies"] = (20.0 - 8.0 * narrow), copies * narrow
    said = precision_memory.not_half(table).data
    assert "and more than float32 at context" in said and ("(the copies of the weights take more" in said) == why


def test_the_ledger_explains_or_does_not():
    here = peaks(0.8, source="here")
    said = precision_memory.ledger_explains(here, peaks(0.8, -0.015)).data
    assert "explains every peak**: the rest is at most 1.0 % here and 1.5 % in the recorded run." in said
    assert "does not explain" in precision_memory.ledger_explains(here, peaks(0.8, -0.2)).data
    assert "at most 1.0 % in the recorded run." in precision_memory.ledger_explains(here, here).data


def sums(**equal) -> pd.DataFrame:
    ends = {way: running(way)[-1] for way in WAYS}
    rows = [{"way": way, "theory": end, "torch": end, "equal": True, "error": end - 10} for way, end in ends.items()]
    return made([row | {"equal": equal.get(row["way"], True)} for row in rows])


def test_sum_stalls():
    said = precision_memory.sum_stalls(sums()).data
    assert "stops at 4**" in said and "✔" in said
    assert (
        "✘ torch's sum differs from the simulated one: float16 + float16"
        in precision_memory.sum_stalls(sums(**{"float16 + float16": False})).data
    )
    longer = sums().assign(theory=9.0)
    assert "ends at 9**" in precision_memory.sum_stalls(longer).data


def test_casts(recorded, monkeypatch):
    said = precision_memory.casts(recorded["numbers"], recorded["numbers"]).data
    assert "the loss is float32.**" in said and "recorded:" not in said
    own = tables.dtypes(recorded["numbers"])
    own.loc[own["what"] == "loss", "float16"] = "float16"
    monkeypatch.setattr(tables, "dtypes", lambda run: own if run == "here" else own.assign(bfloat16="float32"))
    monkeypatch.setattr(tables, "same_by_hand", lambda _: {"float16": True, "bfloat16": False})
    said = precision_memory.casts("here", "there").data
    assert (
        "the loss is float16 and float32.**" in said and "✘ By hand" in said and "bfloat16 (recorded: float32)" in said
    )


def course(scale: float = 4.0, loss: float = 2.0, zero: float = 0.15) -> pd.DataFrame:
    ways = {"float16": zero, "float16 scaled": 0.0, "float16 GradScaler": 0.0, "float32": 0.0, "bfloat16": 0.0}
    rows = [
        {"way": way, "step": step, "loss": 2.0, "scale": 4.0, "skipped": False, "zero_share": share}
        for way, share in ways.items()
        for step in range(3)
    ]
    table = made(rows)
    last = (table["way"] == "float16 scaled") & (table["step"] == 2)
    table.loc[last, ["scale", "loss"]] = [scale, loss]
    return table


def test_scaler_agrees():
    assert "✔ In all 3 steps" in precision_memory.scaler_agrees(course()).data
    assert "and the same losses" in precision_memory.scaler_agrees(course()).data
    assert "losses within 1" in precision_memory.scaler_agrees(course(loss=2.2)).data
    assert "✘ Our scale differs from GradScaler's in 1 of 3" in precision_memory.scaler_agrees(course(scale=8.0)).data
    one = course().query("way == 'float16 scaled'")
    assert "one scaler only" in precision_memory.scaler_agrees(one).data


@pytest.mark.parametrize(("zero", "said"), [(0.15, "saves gradients**: without it 15 %"), (0.0, "saves little")])
def test_scale_saves(zero, said):
    gradients = made([{"of": "weights"}], lost={"activations": 0.02})
    assert said in precision_memory.scale_saves((gradients, course(zero=zero))).data


@pytest.mark.parametrize(("loss", "skipped", "why"), [(2.2, True, True), (2.2, False, False), (2.0, True, False)])
def test_the_scale_can_end_higher_where_it_skips(loss, skipped, why):
    scaled = course(loss=loss)
    scaled["skipped"] = skipped & (scaled["way"] == "float16 scaled") & (scaled["step"] == 0)
    gradients = made([{"of": "weights"}], lost={"activations": 0.02})
    assert ("ends higher: skipped steps train nothing" in precision_memory.scale_saves((gradients, scaled)).data) == why


@pytest.mark.parametrize(("error", "said"), [(0.0, "✔ Each item"), (0.002, "within 0.20 %"), (0.1, "✘"), (NAN, "no")])
def test_bytes_as_computed(error, said):
    assert said in precision_memory.bytes_as_computed(made({"counted_error": [error]})).data


def test_largest_allocation(recorded):
    table = precision_memory.allocations(recorded["timeline"], "float32")
    said = precision_memory.largest_allocation(table, table).data
    assert (
        "takes 100 MiB**: exactly one float32 matrix of the SwiGLU, made in backward: a gradient, no activation."
        in said
    )
    other = made_from(table, table, matrix_mib=2 * fact(table, "matrix_mib"))
    assert "not the size of a matrix" in precision_memory.largest_allocation(table, other).data


def levers(source: str = "here", **ratios) -> pd.DataFrame:
    rows = [
        {"lever": lever.replace("_", " "), "peak_ratio": ratio, "time_ratio": 1.0, "best": False}
        for lever, ratio in ratios.items()
    ]
    return made(rows, fullest_at_loss=True, source=source)


def test_leanest():
    recorded = levers(plain=1.0, a=0.4, b=1.0, source="recorded")
    said = precision_memory.leanest(levers(plain=1.0, a=0.5, b=1.0), recorded).data
    assert "leanest is *a***: of the plain peak, 50 % here and 40 % in the recorded run. Alone, *b* leave" in said
    assert "of the plain peak, 40 % in the recorded run. Alone" in precision_memory.leanest(recorded, recorded).data
    idle = levers(plain=1.0, a=0.4, foreach_AdamW=1.0)
    said = precision_memory.leanest(idle, idle).data
    assert "*foreach AdamW* leave the recorded peak as it is: they change what is there after the loss" in said
    at_the_update = made_from(idle, idle, fullest_at_loss=False)
    assert "leave the recorded peak as it is.\n" in precision_memory.leanest(idle, at_the_update).data
    assert "did not run" in precision_memory.leanest(levers(a=NAN), levers(plain=1.0)).data
