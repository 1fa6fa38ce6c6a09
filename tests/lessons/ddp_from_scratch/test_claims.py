"""The claims of the report that lab 10 reads: figures in their reasons, verdicts that follow the printed table."""

import pytest

from labkit.claims import claims
from labkit.engine.recordings import replay
from labkit.theory.transformer import SIZES, transformer
from lessons import ddp_from_scratch as ddp
from lessons.ddp_from_scratch.claims import step_s


@pytest.fixture
def edited(edited_claims):
    """Returns a function that prints other seconds for an implementation and returns the claims of that table."""

    def edit(implementation, seconds, bucket_mb=None, column="step_seconds"):
        def change(rows):
            chosen = rows["implementation"] == implementation
            if bucket_mb:
                chosen &= rows["bucket_mb"] == bucket_mb
            return rows.assign(**{column: rows[column].astype(object).mask(chosen, seconds)})

        return edited_claims(ddp, "ddp_from_scratch", change)

    return edit


def test_figures_in_the_reasons_are_those_of_the_recorded_runs():
    at_128, at_32 = (ddp.implementations(replay(ddp.RECORDED[f"report_{n}"])).set_index("strategy") for n in (128, 32))

    def differs_by(table, strategy):
        rows = table.loc[["naive", strategy]]
        return rows["step_ms"].diff().iloc[1], rows["spread_step_ms"].sum()

    assert at_128.loc[["overlapped", "naive"], "step_ms"].round(1).tolist() == [637.0, 644.6]
    assert differs_by(at_128, "overlapped") == pytest.approx((-7.5, 0.6), abs=0.05)
    assert differs_by(at_128, "flat") == pytest.approx((-3.3, 0.5), abs=0.05)
    assert differs_by(at_32, "bucketed") == pytest.approx((-19, 15), abs=0.5)
    within_noise = (differs_by(at_32, "overlapped"), differs_by(at_128, "bucketed"))
    assert all(abs(difference) < spread for difference, spread in within_noise)
    naive_ms = [table.loc["naive", "step_ms"] for table in (at_32, at_128)]
    assert 3 * naive_ms[0] < 846 < 2 * naive_ms[1], "over three times ours with 32 positions, possible with 128"
    assert 1e3 * (step_s("flat", column="communication_seconds") - 0.0681) == pytest.approx(28.6)
    assert 4 * 4 * transformer(*SIZES["xl"][:3]).parameters / 3352e6 == pytest.approx(9.5, abs=0.05), "two copies"
    fit = ddp.overhead(replay(ddp.RECORDED["buckets"])).iloc[0]
    assert fit[["gb_per_s", "overhead_us", "residual"]].tolist() == pytest.approx([257, 41, 0.09], abs=0.5)


@pytest.mark.parametrize(
    ("claim", "implementation", "seconds", "more", "holds"),
    [
        ("naive_step", "individual", 0.84, {}, True),
        ("flat_is_slower", "flat", 0.917, {}, True),
        ("flat_is_slower", "flat", 0.70, {}, False),
        ("batch_of_32", "naive", 1.3, {}, False),
        ("naive_sends", "naive", 0.01, {"column": "communication_seconds"}, False),
        ("naive_sends", "naive", 0.2, {"column": "communication_seconds"}, False),
        ("size_1_against_10", "bucketed", 0.99, {"bucket_mb": 1}, None),
        ("large_buckets_do_not_fit", "bucketed", "OOM", {"bucket_mb": 100}, None),
        ("large_buckets_do_not_fit", "bucketed", 0.9, {"bucket_mb": 1000}, False),
    ],
)
def test_a_verdict_follows_the_printed_table(edited, claim, implementation, seconds, more, holds):
    assert edited(implementation, seconds, **more)["holds"][claim] is holds


def test_the_number_of_buckets_is_right_and_their_size_is_not(edited_claims):
    assert claims(ddp).set_index("claim").loc["best_number", ["printed", "holds"]].tolist() == ["√(s/(w·o))", True]
    changed = edited_claims(ddp, "ddp_from_scratch_statements", ("√(s/(w·o))", "√(s·w·o)"))
    assert changed.loc["best_number", "holds"] is False
