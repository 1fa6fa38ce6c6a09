"""Tables of a profile, on made-up runs: parts add up, differences add up, spans begin at zero."""

import pytest
from made import CPU, gpu_node, write_run
from traced_plan import Traced

from labkit.tables.profile import memory_timeline, operators, profile, segments, trace_spans
from labkit.theory.allocations import fragments

# ms a step: compute, communication, hidden; kernels: name → family, calls, µs
STEPS = {"ddp": (310.0, 60.0, 45.0), "fsdp": (330.0, 120.0, 110.0), "alone": (300.0, 0.0, 0.0)}
KERNELS = {
    "ddp": {"gemm": ("matmul", 90, 2000.0), "all_reduce": ("nccl", 12, 500.0), "other": ("other", 40, 70.0)},
    "fsdp": {
        "gemm": ("matmul", 90, 2010.0),
        "all_gather": ("nccl", 24, 800.0),
        "copy": ("copy", 24, 90.0),
        "other": ("other", 50, 60.0),
    },
}


def account(compute: float, moved: float, hidden: float, idle: float = 12.0) -> dict:
    exposed = moved - hidden
    return {
        "entry": "profile",
        "window_ms": compute + exposed + idle,
        "compute_ms": compute,
        "communication_ms": moved,
        "hidden_ms": hidden,
        "exposed_ms": exposed,
        "idle_ms": idle,
        "kernels": 900.0,
        "communication_kernels": 12.0,
    }


def spans(rank: int) -> list[dict]:
    """Give an all-gather before each of six layers and a reduce-scatter at the end, on a clock far from zero."""
    zero, found = 1.7e15, []
    for layer in range(6):
        at = zero + 100.0 * rank + 9000 * layer
        found.append(("communicate", "all_gather", at, at + 4000))
        found += [("compute", "", at + 3000, at + 8500), ("copy", "", at + 8500, at + 8900)]
    found.append(("communicate", "reduce_scatter", zero + 55000, zero + 58000))
    names = ("span", "collective", "start_us", "end_us")
    return [dict(zip(names, values, strict=True)) | {"lane": f"rank {rank}"} for values in found]


def memory() -> list[dict]:
    """Give two moments of a rank's memory."""
    moments = [{"t_ms": 0.0, "allocated_mib": 900.0}, {"t_ms": 1.0, "allocated_mib": 3900.0}]
    return [{"entry": "memory timeline"} | moment for moment in moments]


def pieces(count: int = 230) -> list[dict]:
    made = []
    for at in range(count):
        total = 2**20 * (2000 // (at + 1) + 2)
        used = total * (3 + at % 5) // 8
        made.append(
            {"total_size": total, "allocated_size": used, "blocks": [{"state": "inactive", "size": total - used}]}
        )
    return [{"entry": "segment"} | row for row in fragments(made)]


def profiled(folder, strategies=("ddp", "fsdp"), ranks=(2, 4), *, device="cuda", scale=1.0):
    """Write a run whose ranks differ: rank r exposes r % more communication than rank 0."""
    rows, size = [], "full" if device == "cuda" else "small"
    for point, (strategy, count) in enumerate((s, r) for r in ranks for s in strategies):
        knobs = {"point": point, "seed": 0, "strategy": strategy, "ranks": count, "micro_batch": 8}
        for rank in range(count):
            compute, moved, hidden = (scale * part for part in STEPS[strategy])
            found = [account(compute, hidden + (moved - hidden) * (1 + rank / 100), hidden)]
            for name, (family, calls, us) in KERNELS.get(strategy, {}).items():
                us = us + 10 * rank
                found.append({"entry": "operator", "operator": name, "family": family, "calls": calls, "total_us": us})
            found += spans(rank)
            found += memory() + pieces() if device == "cuda" else []
            rows += [(rank, knobs | row) for row in found]
    plan = Traced(device=device, gpus=max(ranks), size=size, strategies=strategies)
    return write_run(folder, plan, gpu_node(max(ranks)) if device == "cuda" else CPU, rows)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profiles")
    return {
        "full": profiled(folder / "full"),
        "small": profiled(folder / "small", ("alone", "ddp", "fsdp"), (2,), device="cpu", scale=0.02),
    }


def test_means_over_ranks_add_up(runs):
    table = profile(runs["full"])
    assert table[["strategy", "ranks"]].to_records(index=False).tolist() == [
        ("ddp", 2),
        ("fsdp", 2),
        ("ddp", 4),
        ("fsdp", 4),
    ]
    assert table["exposed_ms"].to_list() == pytest.approx([15.075, 10.05, 15.225, 10.15])
    shares = table[["compute_share", "exposed_share", "idle_share"]].sum(axis=1)
    assert shares.to_list() == pytest.approx([1] * 4)
    assert table["overlap"].to_list() == pytest.approx([45 / 60.075, 110 / 120.05, 45 / 60.225, 110 / 120.15])
    alone = profile(runs["small"]).set_index("strategy").loc["alone"]
    assert alone["overlap"] != alone["overlap"]
    assert (alone["exposed_share"], profile(runs["small"]).attrs["small"]) == (0, True)


def test_operator_differences_add_up_and_unlisted_kernels_count_as_none(runs):
    table = operators(runs["full"], "fsdp", "ddp")
    assert table["operator"].to_list() == ["all_gather", "all_reduce", "copy", "gemm", "all others"]
    # The mean over four ranks is 15 µs above rank 0.
    assert table["difference_us"].to_list() == pytest.approx([815, -515, 105, 10, -10])
    assert table.loc[1, ["calls", "base_calls", "calls_difference"]].to_list() == [0, 12, -12]
    assert table["total_us"].sum() == pytest.approx(2010 + 800 + 90 + 60 + 4 * 15)
    assert table["base_total_us"].sum() == pytest.approx(2000 + 500 + 70 + 3 * 15)
    assert table["calls_difference"].sum() == 188 - 142
    assert (table.attrs["strategy"], table.attrs["base"], table.attrs["ranks"]) == ("fsdp", "ddp", 4)
    assert operators(runs["full"], "fsdp", "ddp", ranks=2).loc[0, "difference_us"] == pytest.approx(805)
    with pytest.raises(ValueError, match=r"fsdp and alone .* known are .*'ddp', 4"):
        operators(runs["full"], "fsdp", "alone")


def test_many_operators_are_twelve_rows_with_the_same_total(tmp_path):
    rows = []
    for point, strategy in enumerate(("ddp", "fsdp")):
        knobs = {"point": point, "seed": 0, "strategy": strategy, "ranks": 1, "entry": "operator", "family": "other"}
        rows += [(0, knobs | {"operator": f"k{i}", "calls": 1 + point, "total_us": 1.0 + i * point}) for i in range(30)]
    table = operators(write_run(tmp_path / "run", Traced(device="cpu"), CPU, rows), "fsdp", "ddp")
    assert len(table) == 12
    assert table["operator"].iloc[[0, -1]].to_list() == ["k29", "all others"]
    assert (table["difference_us"].sum(), table["calls"].sum(), table["base_calls"].sum()) == (435, 60, 30)


def test_memory_of_one_rank(runs):
    table = memory_timeline(runs["full"], strategy="fsdp")
    assert table["allocated_mib"].tolist() == [900, 3900], "of one rank at one point"
    assert table.attrs["setting"] == "fsdp, 2 ranks"
    table = segments(runs["full"])
    assert (len(table), table["segments"].sum()) == (201, 230)
    assert table.attrs["unused_share"] == pytest.approx(1 - table["allocated_mib"].sum() / table["segment_mib"].sum())
    none = memory_timeline(runs["small"]), segments(runs["small"])
    assert all(table.empty and "t_ms" in none[0] for table in none)


def test_spans_begin_at_zero_and_know_their_collective(runs):
    table = trace_spans(runs["full"], "fsdp")
    assert (table["start_ms"].min(), table.attrs["setting"]) == (0, "fsdp, 4 ranks")
    assert table.groupby("rank")["start_ms"].min().to_list() == pytest.approx([0, 0.1, 0.2, 0.3], abs=1e-3)
    assert table["collective"].value_counts()["all_gather"] == 24
    assert table["end_ms"].max() == pytest.approx(58)
    with pytest.raises(ValueError, match=r"zero was not traced; traced were \['ddp', 'fsdp'\]"):
        trace_spans(runs["full"], "zero")
