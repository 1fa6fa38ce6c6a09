"""The claims of two reports on BERT: other printed figures give other verdicts."""

import pytest

from lessons import ddp_fsdp

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"


@pytest.mark.parametrize(
    ("claim", "holds", "report", "batch", "strategy", "figures"),
    [
        ("shared_batch", None, FOUR, 64, None, {"step_seconds": 0.5}),
        ("share_of_64_by_time", True, EIGHT, 64, "ddp", {"step_seconds": 0.154}),
        ("share_of_16_by_time", True, EIGHT, 16, "ddp", {"step_seconds": 0.0385}),
        ("share_by_memory", True, EIGHT, 64, "ddp", {"peak": 10945447594.0 + 48 * 574.6e6 / 4}),
        ("rate_at_64", True, EIGHT, 64, "ddp", {"samples_per_second": 444.0}),
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
        rows = (table["report"] == report) & (table["global_batch"] == batch)
        rows &= (table["strategy"] == strategy) | (strategy is None)
        return table.assign(**{column: table[column].mask(rows, value) for column, value in figures.items()})

    assert edited_claims(ddp_fsdp, "ddp_fsdp", change).loc[claim, "holds"] is holds
