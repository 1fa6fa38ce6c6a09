"""What a report answers on XXL: each claim's figures and verdict, and that another printed figure turns the verdict."""

import pytest

from labkit.claims import claims
from labkit.tables.published import published
from lessons import accounting
from lessons.accounting import tables, theory
from lessons.accounting.claims import agrees
from lessons.accounting.theory import XXL


@pytest.fixture
def table():
    return claims(accounting).set_index("claim")


@pytest.mark.parametrize(
    ("claim", "printed", "recomputed", "holds"),
    [
        ("parameters", 220, 219.848638, True),
        ("states", 3276, 3276, True),
        ("activations", 0.016, 0.016342, True),
        ("devices_needed", 41, 44, None),
        ("shards", 34, 37, None),
        ("activations_per_device", 0.002, 0.0081710, False),
        ("compute_bound_batch", 641, 395.3393, False),
    ],
)
def test_figures_and_verdict(table, claim, printed, recomputed, holds):
    row = table.loc[claim]
    assert (row["printed"], row["holds"]) == (pytest.approx(printed), holds)
    assert row["recomputed"] == pytest.approx(recomputed, rel=1e-4)


def test_the_mistakes_that_reasons_name_give_what_is_printed(table):
    states = sum(theory.parts_bytes(XXL, 0).values())
    assert theory.devices(states, 80, "GiB") == table.loc["devices_needed", "printed"]
    assert theory.devices(states, 81559, "MiB") == 42 and round(81559 / 1024, 1) == 79.6
    assert theory.smallest_fsdp(XXL, 0, theory.bytes_of(95, "GiB")) - 1 == table.loc["shards", "printed"]
    half_the_blocks_gib = XXL.blocks / 2 * XXL.d_model * 2 / 2**30
    assert half_the_blocks_gib == pytest.approx(table.loc["activations_per_device", "printed"], abs=5e-4)
    assert theory.least_tokens(accounting.theory.COURSE_MESH, XXL, together=True) / 64 == pytest.approx(319, abs=0.5)
    with_rounded_compute = tables.derivation(published("communication_accounting"))["report"].iloc[-2]
    assert int(with_rounded_compute) == table.loc["compute_bound_batch", "printed"]


@pytest.mark.parametrize(
    ("printed", "ours", "same"),
    [
        (2.2e11, 219848638464, True),
        (0.016, 0.01634, True),
        (0.016, 0.0166, False),
        (3276, 3276.4, True),
        (41, 44, False),
    ],
)
def test_answers_agree_to_the_digits_printed(printed, ours, same):
    assert agrees(printed, ours) is same


@pytest.mark.parametrize(
    ("line", "edited", "claim", "holds"),
    [
        ("equivalents,41", "equivalents,44", "devices_needed", True),
        ("equivalents,41", "equivalents,43", "devices_needed", False),
        ("95 GB,34", "95 GB,37", "shards", True),
        ("batch,641", "batch,395", "compute_bound_batch", True),
        ("holds,0.002", "holds,0.0082", "activations_per_device", True),
        ("parameters,220000000000.0", "parameters,330000000000.0", "parameters", False),
    ],
)
def test_another_printed_figure_turns_the_verdict(edited_claims, line, edited, claim, holds):
    assert edited_claims(accounting, "communication_accounting", (line, edited)).loc[claim, "holds"] is holds
