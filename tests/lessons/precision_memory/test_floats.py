"""Lab 07's floats: rounding, bits and spacing are torch's, and sums stall where half a spacing exceeds the term."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lessons.precision_memory.tables import running_sums, spacing
from lessons.precision_memory.theory.floats import FORMATS, WAYS, running, stalls_at

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8 e4m3": torch.float8_e4m3fn,
    "float8 e5m2": torch.float8_e5m2,
}
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@pytest.mark.parametrize("name", DTYPES)
@given(value=numbers)
def test_rounding_is_torchs(name, value):
    form = FORMATS[name]
    ours, torchs = form.rounded(value), torch.tensor(value, dtype=torch.float32).to(DTYPES[name]).double().item()
    if math.isinf(ours) and form.finite_only:
        assert abs(value) > form.largest, "torch gives NaN or the largest number, by version"
    else:
        assert ours == torchs


@pytest.mark.parametrize("name", DTYPES)
def test_limits_are_torchs(name):
    limits = torch.finfo(DTYPES[name])
    form = FORMATS[name]
    assert (form.largest, form.least_normal) == (limits.max, limits.smallest_normal)
    assert form.spacing(1.0) == limits.eps
    assert form.least == torch.tensor(form.least, dtype=torch.float64).to(DTYPES[name]).double().item() > 0


@given(value=st.floats(-60000, 60000, width=32))
def test_bits_say_the_number(value):
    half = torch.tensor(value, dtype=torch.float32).to(torch.float16)
    stored = half.view(torch.int16).item() & 0xFFFF
    assert "".join(FORMATS["float16"].bits(value)) == f"{stored:016b}"


@pytest.mark.parametrize("name", ["bfloat16", "float8 e4m3", "float8 e5m2"])
@given(value=st.floats(-400, 400, width=32))
def test_bits_of_other_formats(name, value):
    form = FORMATS[name]
    stored = torch.tensor(value, dtype=torch.float32).to(DTYPES[name])
    wide = {1: torch.uint8, 2: torch.int16}[stored.element_size()]
    bits = stored.view(wide).item() & (0xFF if stored.element_size() == 1 else 0xFFFF)
    assert "".join(form.bits(value)) == f"{bits:0{1 + form.exponent + form.mantissa}b}"


def test_beyond_the_largest():
    assert FORMATS["float16"].rounded(65520) == math.inf
    assert FORMATS["float16"].rounded(65519) == 65504
    assert FORMATS["float16"].bits(1e6) == ("0", "11111", "0" * 10)
    assert FORMATS["float8 e4m3"].rounded(-500) == -math.inf


def test_the_sums_of_the_assignment():
    printed = ["10.0001", "9.9531", "10.0021", "10.0021"]
    assert [f"{running(way)[-1]:.4f}" for way in list(WAYS)[:4]] == printed
    assert running("bfloat16 + bfloat16")[-1] == 4.0 == stalls_at("bfloat16")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_kahan_and_blocks_help(name):
    errors = {way: abs(running(f"{name}{way}")[-1] - 10) for way in (f" + {name}", ", Kahan", ", blocks of 32")}
    plain, kahan, blocks = errors.values()
    assert kahan <= blocks < plain
    assert kahan <= FORMATS[name].spacing(10)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8 e5m2"])
def test_a_sum_stalls_where_it_is_said(name):
    form, at = FORMATS[name], stalls_at(name)
    term = form.rounded(0.01)
    assert form.rounded(at + term) == at
    assert form.rounded(at / 2 + term) > at / 2


def test_tables_of_formats():
    table = spacing()
    one = table[table["value"] == 1.0].set_index("format")["spacing"]
    assert one["float32"] == 2**-23 and one["tf32"] == one["float16"] == 2**-10 and one["bfloat16"] == 2**-7
    half = table[table["format"] == "float16"]
    assert half["value"].max() == 2**15, "2^16 is beyond float16"
    sums = running_sums()
    assert len(sums) == 1000 * len(WAYS)
