"""Each verdict of lab 05 follows its table: said where it holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import attributed, table

from lessons import sharding

NAN = float("nan")


def rates(ddp=0.97, full=0.96, shared=0.52, source="made"):
    rows = [("large", "single", 1, 1.0), ("large", "ddp", 2, ddp), ("large", "fsdp_full", 2, full)]
    rows += [("shared out", "single", 1, 1.0), ("shared out", "ddp", 2, 0.94), ("shared out", "fsdp_full", 2, shared)]
    made = table(*rows, columns=["load", "strategy", "ranks", "efficiency"], source=source)
    return made.assign(spread_efficiency=0.01)


def held(share=0.07, peaks=(60000.0, 54000.0), counted=0.002):
    rows = [("large", "ddp", 2, peaks[0], -share, 0.01), ("large", "fsdp_full", 2, peaks[1], 0.02, counted)]
    made = table(*rows, columns=["load", "strategy", "ranks", "peak", "unexplained_share", "counted_error"])
    return made.assign(predicted=[50000.0, 40000.0])


def sent(equal=True):
    columns = ["load", "strategy", "ranks", "collective", "calls", "counted_calls", "mib", "counted_mib", "equal"]
    return table(("large", "ddp", 2, "all-reduce", 55, 55 - (not equal), 1476.0, 1476.0, equal), columns=columns)


@pytest.mark.parametrize(
    ("rates", "held", "said"),
    [
        (rates(), held(), "Against DDP, full sharding saves 10 % of the peak and has the same rate within noise"),
        (rates(full=0.5), held(peaks=(NAN, NAN)), "saves 20 % of what the ledger counts and keeps 52 % of the rate"),
        (rates(), held().iloc[:1], "lacks DDP or full sharding"),
        (rates().query("strategy != 'fsdp_full'"), held(), "lacks DDP or full sharding"),
    ],
)
def test_worth_it(rates, held, said):
    assert said in sharding.worth_it(rates, held).data


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        (rates(), "**With the report's batch, FSDP full keeps 52 % instead of 96 %.**"),
        (rates(source="recorded on 2"), "**In the recorded run, with the report's batch, FSDP full keeps 52 %"),
        (rates(shared=0.95), "**With the report's batch, DDP keeps 94 % instead of 97 %"),
        (rates(ddp=0.95, shared=0.95), "every strategy keeps 94 % or more: no less"),
        (rates().query("load == 'large'"), "no batch that is shared out"),
    ],
)
def test_small_batch(rates, said):
    assert said in sharding.small_batch(rates).data


@pytest.mark.parametrize(
    ("held", "sent", "parts"),
    [
        (held(), sent(), ("**Every collective agrees", "explains every peak within 7.0 %")),
        (held(0.12), sent(False), ("**1 of 1 collectives differ", "leaves 12 % of a peak open")),
        (held(NAN).assign(unexplained_share=NAN), sent(), ("within 1.0 % of the memory ledger", "no allocator")),
    ],
)
def test_ledgers_agree(held, sent, parts):
    text = sharding.ledgers_agree(held, sent).data
    assert all(part in text for part in parts), text


def trained(*errors):
    rows = [(name, 1e-7, error, error < 1e-3) for name, error in errors]
    return table(*rows, columns=["strategy", "loss_error", "update_error", "equal"])


@pytest.mark.parametrize(
    ("equality", "said"),
    [
        (trained(("ddp", 2e-6), ("fsdp_full", 8e-6)), "✔ **All strategies train as one process does**"),
        (trained(("ddp", 2e-6), ("fsdp_full", 0.5)), "✘ **FSDP full trained otherwise than one process**, by up to 50"),
        (trained(), "no training to compare"),
    ],
)
def test_same_training(equality, said):
    assert said in sharding.same_training(equality).data


def accumulated(*rows):
    columns = ["strategy", "step_ms_every", "saved_ms", "resolved"]
    made = table(*rows, columns=columns).assign(micro_batches=4)
    seen = made["strategy"].duplicated(keep="last")
    made["micro_batches"] = made["micro_batches"].mask(seen, 2)
    return made


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            (("ddp", 400.0, 20.0, True), ("fsdp_full", 400.0, -20.0, True)),
            "DDP takes 5.0 % less time and FSDP full takes",
        ),
        ((("fsdp_full", 400.0, -20.0, True),), "FSDP full takes 5.0 % more time.**"),
        ((("ddp", 400.0, 20.0, True), ("fsdp_full", 400.0, 2.0, False)), "FSDP full takes the same time within noise"),
        ((("ddp", 40.0, -3.0, True), ("ddp", 400.0, 20.0, True)), "some numbers of micro-batches, more with others"),
        ((("ddp", 40.0, -3.0, False), ("ddp", 400.0, 20.0, True)), "DDP takes 5.0 % less time"),
        ((("ddp", 280.0, -58.0, True), ("ddp", 800.0, 24.0, False)), "within noise, but more with fewer micro-batches"),
        ((("ddp", 400.0, 20.0, False),), "4 micro-batches, every strategy takes the same time within noise"),
    ],
)
def test_one_exchange(rows, said):
    made = accumulated(*rows)
    other = table(columns=made.columns, on_cpu=True)
    assert said in sharding.one_exchange(made, other).data
    assert said in sharding.one_exchange(other, made).data, "of a run on CPUs nothing is said"


def hidden(apart, idle_shares=None):
    columns = ["strategy", "trace_ms", "apart_points"]
    return table(("ddp", 1.27, apart), ("fsdp_full", 31.8, 1.0), columns=columns, idle_shares=idle_shares or {})


@pytest.mark.parametrize(
    ("overlap", "said", "unsaid"),
    [
        (hidden(2.5), "Exposed, by the trace: 1.3 ms (DDP) and 32 ms (FSDP full).** The three methods agree.", "late"),
        (hidden(48.0), "The three methods do not agree", "late"),
        (hidden(2.5, {"fsdp_full": 0.45}), "The host is late", "do not"),
        (hidden(2.5).iloc[:0], "Nothing was communicated", "agree"),
    ],
)
def test_hidden_share(overlap, said, unsaid):
    text = sharding.hidden_share(overlap).data
    assert said in text and unsaid not in text, text


def test_added_by_sharding():
    rows = [("gemm", 0, 900.0), ("all-gather", 73, 53790.0), ("all-reduce", -55, -60000.0)]
    operators = table(*rows, columns=["operator", "calls_difference", "difference_us"])
    assert "largest difference is all-reduce: -60.0 ms" in sharding.added_by_sharding(operators).data
    assert "no kernels" in sharding.added_by_sharding(operators.iloc[:0]).data


def lines(*rows):
    names = ["collective", "ranks", "alpha_us", "beta_gb_per_s", "residual", "knee_mib"]
    return pd.DataFrame(rows, columns=names)


@pytest.mark.parametrize(
    ("alpha_us", "residual", "said"),
    [
        (
            22.0,
            0.1,
            "from is within 10 % of its line. **From 2 to 4 ranks, α grows less than the hops of a ring",
        ),
        (60.0, 0.1, "α grows as the hops of a ring"),
        (99.0, 0.1, "α grows more than the hops of a ring"),
        (60.0, 0.34, "A line is too simple: it misses by up to 34 %"),
    ],
)
def test_lines_fit(alpha_us, residual, said):
    few = lines(("all-reduce", 2, 20.0, 250.0, 0.0, 4.77))
    both = lines(("all-reduce", 2, 20.0, 250.0, 0.0, 4.77), ("all-reduce", 4, alpha_us, 250.0, residual, 4.77))
    text = sharding.lines_fit(both, few).data
    assert said in text and text.count("| this run |") == 1
    assert "grows" not in sharding.lines_fit(few, both).data
    assert "two sizes" in sharding.lines_fit(few.iloc[:0], few).data


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (0.005, "**The projection is right**, within one point: FSDP full on 2 GPUs should lose 1.0 %"),
        (0.05, "**The projection leaves out most of the cost**"),
        (-0.03, "**The projection counts too much**"),
        (NAN, "Nothing here tests the projection"),
    ],
)
def test_projection_error(error, said):
    rows = [("fsdp_full", 2, 0.99, error), ("fsdp_full", 8, 0.95, NAN)]
    assert said in sharding.projection_error(table(*rows, columns=["strategy", "gpus", "efficiency", "error"])).data


def test_a_projection_that_holds_for_one_strategy_says_so():
    rows = [("fsdp_full", 4, 0.995, 0.05), ("fsdp_root", 4, 0.985, 0.006), ("fsdp_root", 2, 0.99, 0.001)]
    said = sharding.projection_error(table(*rows, columns=["strategy", "gpus", "efficiency", "error"])).data
    assert "loses 5.2 %. It is right within one point for FSDP as one group." in said
    assert "| FSDP as one group | 4 | 1.5 % | 2.1 % |" in said


@pytest.mark.parametrize(
    ("speedup", "small", "said"),
    [
        (1.99, False, "On 2 ranks DDP is 1.99 times as fast; the report prints 1.93**: about the same"),
        (1.5, False, "1.50 times as fast; the report prints 1.93**."),
        (1.5, True, "**Recorded, on 2 ranks DDP is 1.99 times as fast"),
    ],
)
def test_as_the_report(speedup, small, said):
    names = ["strategy", "ranks", "speedup", "printed_speedup"]
    made = table(("single", 1, 1.0, 1.0), ("ddp", 2, speedup, 1.93), columns=names, small=small)
    recorded = table(("single", 1, 1.0, 1.0), ("ddp", 2, 1.99, 1.93), columns=names, small=False)
    assert said in sharding.as_the_report(made, recorded).data
    alone = attributed(made.iloc[:1].to_dict("records"), small=False)
    assert "lacks DDP" in sharding.as_the_report(alone, recorded).data
