"""The claims of two reports on BERT: other printed figures give other verdicts."""

import pytest

from labkit.claims import claims
from lessons import ddp_fsdp
from lessons.ddp_fsdp.tables import printed_differences, printed_runs

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"


@pytest.mark.parametrize(
    ("claim", "holds", "report", "batch", "strategy", "figures"),
    [
        ("whole_batch", False, EIGHT, 64, "ddp", {"step_seconds": 0.154}),
        ("per_sample", None, EIGHT, 64, "ddp", {"peak": 10945447594.0 + 48 * 323e6}),
        ("overhead", True, FOUR, 64, "fsdp_full", {"samples_per_second": 415.0}),
        ("slower_at_64_in_the_other", True, EIGHT, 64, "fsdp_full", {"samples_per_second_std": 0.1}),
        ("saving", False, FOUR, 64, "fsdp_full", {"peak": 9000.0}),
        ("saving_by_batch", False, EIGHT, 64, "fsdp_full", {"peak": 38312673450.0 - 300 * 2**20}),
        ("saving_by_batch", False, EIGHT, 64, "fsdp_full", {"peak": 35629350000.0}),
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


@pytest.mark.parametrize(
    ("printed", "other", "claim", "holds"),
    [
        ("parameters,109", "parameters,109", "parameters", None),
        ("parameters,109", "parameters,438", "parameters", True),
        ("parameters,109", "parameters,300", "parameters", False),
        ("GPUs,none", "GPUs,none", "sent_by_ddp", False),
        ("GPUs,none", "GPUs,gradients", "sent_by_ddp", True),
        ("the non-sharded batch", "a fourth of the batch", "whole_batch", False),
    ],
)
def test_other_statements_give_other_verdicts(edited_claims, printed, other, claim, holds):
    assert edited_claims(ddp_fsdp, "ddp_fsdp_statements", (printed, other)).loc[claim, "holds"] is holds


def test_figures_in_the_reasons_of_the_differences():
    differences = printed_differences().set_index(["report", "global_batch"])
    at_16, at_64 = differences.loc[(EIGHT, 16)], differences.loc[(FOUR, 64)]
    assert -100 * at_16["difference"] == pytest.approx(0.73, abs=0.005)
    assert 200 * at_16["standard_error"] == pytest.approx(0.57, abs=0.005)
    assert -at_64["difference"] / at_64["standard_error"] == pytest.approx(7.4, abs=0.5)


def test_what_the_page_says_of_steps_and_samples():
    judged = claims(ddp_fsdp).set_index("claim")
    assert judged["holds"]["whole_batch"] is True and judged["holds"]["rate"] is None
    assert judged.loc["per_sample", ["printed", "recomputed"]].tolist() == pytest.approx([570.2, 573], abs=0.5)
    seconds = printed_runs().set_index(["report", "global_batch", "strategy"])["step_seconds"]
    assert seconds[EIGHT, 16, "ddp"] / seconds[FOUR, 64, "ddp"] == pytest.approx(1, abs=0.01), "one kind of GPU"
