"""The claims of two reports on BERT: figures and verdicts, and that other printed figures give other verdicts."""

import pytest

from labkit.claims import claims
from lessons import ddp_fsdp

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"
FIGURES = {  # printed, recomputed, holds
    "shared_batch": (16, 16, True),
    "share_of_64_by_time": (16, 59.7547, False),
    "share_of_16_by_time": (4, 16.1114, False),
    "share_by_memory": (2280.6, 574.60, False),
    "rate_at_64": (111.166, 444.66, False),
    "rate_at_16": (103.075, 412.30, False),
    "overhead": (0.1, 0.2105, False),
    "sent_by_ddp": (0, 656.911, False),
    "parameters": (109, 437.935, False),
    "slower_at_64": (0.21, 0.045652, True),
    "slower_at_64_in_the_other": (7.39, 12.2428, None),
    "slower_at_16": (0.73, 0.46740, True),
    "saving_by_batch": (3.51, 3.50033, True),
    "saving": (733, 1252.94, True),
    "wrapping": (733, 1156.0, None),
    "memory_with_dropout": (574.601, 663.339, None),
    "fused_attention": (570.151, 322.767, None),
}


def judged():
    return claims(ddp_fsdp).set_index("claim")


def test_figures_and_verdicts():
    table = judged()
    assert set(table.index) == set(FIGURES)
    printed_and_recomputed = table[["printed", "recomputed"]].map(lambda figure: isinstance(figure, str))
    assert not printed_and_recomputed.any(axis=None), "figures in one unit, no texts with units of their own"
    for name, (printed, recomputed, holds) in FIGURES.items():
        assert table.loc[name, "printed"] == pytest.approx(printed, rel=1e-4), name
        assert table.loc[name, "recomputed"] == pytest.approx(recomputed, rel=1e-4), name
        assert table.loc[name, "holds"] is holds, name


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
