"""The claims of two reports on BERT: other printed figures give other verdicts."""

import pytest

from lessons import ddp_fsdp
from lessons.ddp_fsdp.tables import printed_differences

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"


@pytest.mark.parametrize(
    ("claim", "holds", "report", "batch", "strategy", "figures"),
    [
        ("shared_batch", None, FOUR, 64, None, {"step_seconds": 0.5}),
        ("share_by_time", False, EIGHT, 64, "ddp", {"step_seconds": 0.154}),
        ("share_by_time", True, EIGHT, None, "ddp", {"step_seconds": {64: 0.154, 16: 0.0385}}),
        ("share_by_memory", True, EIGHT, 64, "ddp", {"peak": 10945447594.0 + 48 * 574.6e6 / 4}),
        ("rate", True, EIGHT, None, "ddp", {"samples_per_second": {64: 444.0, 16: 412.0}}),
        ("overhead", True, FOUR, 64, "fsdp_full", {"samples_per_second": 415.0}),
        ("slower_at_64", None, FOUR, 64, "fsdp_full", {"samples_per_second_std": 5.0}),
        ("slower_at_64_in_the_other", True, EIGHT, 64, "fsdp_full", {"samples_per_second_std": 0.1}),
        ("fused_attention", True, EIGHT, 64, "ddp", {"peak": 10945447594.0 + 48 * 323e6}),
        ("saving", False, FOUR, 64, "fsdp_full", {"peak": 9000.0}),
        ("saving_by_batch", False, EIGHT, 64, "fsdp_full", {"peak": 38312673450.0 - 300 * 2**20}),
        ("saving_by_batch", False, EIGHT, 64, "fsdp_full", {"peak": 35629350000.0}),
        ("wrapping", True, FOUR, 64, "fsdp_full", {"peak": 10438.31 - 1156}),
    ],
)
def test_other_figures_give_other_verdicts(edited_claims, claim, holds, report, batch, strategy, figures):
    def change(table):
        rows = (table["report"] == report) & ((table["global_batch"] == batch) | (batch is None))
        rows &= (table["strategy"] == strategy) | (strategy is None)
        others = {
            column: table["global_batch"].map(value) if isinstance(value, dict) else value
            for column, value in figures.items()
        }
        return table.assign(**{column: table[column].mask(rows, other) for column, other in others.items()})

    assert edited_claims(ddp_fsdp, "ddp_fsdp", change).loc[claim, "holds"] is holds


def test_figures_in_the_reasons_of_the_differences():
    differences = printed_differences().set_index(["report", "global_batch"])
    at_16, at_64 = differences.loc[(EIGHT, 16)], differences.loc[(FOUR, 64)]
    assert -100 * at_16["difference"] == pytest.approx(0.73, abs=0.005)
    assert 200 * at_16["standard_error"] == pytest.approx(0.47, abs=0.005)
    assert -at_64["difference"] / at_64["standard_error"] == pytest.approx(9, abs=0.5)
