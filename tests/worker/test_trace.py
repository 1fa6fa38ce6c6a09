"""Real launches on two processes: the profiled step's account adds up, and shows the collectives that ran."""

from types import SimpleNamespace

import pytest
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent
from traced_plan import Traced

from labkit.launching import launch
from labkit.worker import trace

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("LABKIT_PROGRESS", "0")
        yield launch(Traced(), progress=False)


def test_every_account_fills_its_window(run):
    rows = run.rows[run.rows["entry"] == "profile"]
    assert len(rows) == 6
    parts = rows[["compute_ms", "exposed_ms", "idle_ms"]].sum(axis=1)
    assert parts.to_list() == pytest.approx(rows["window_ms"].to_list())
    hidden = rows["hidden_ms"] + rows["exposed_ms"]
    assert hidden.to_list() == pytest.approx(rows["communication_ms"].to_list())
    assert (rows["compute_ms"] > 0).all()


def test_communication_is_found_where_there_is_some(run):
    rows = run.rows[run.rows["entry"] == "profile"]
    moved = rows.groupby("strategy")["communication_kernels"].unique().map(list).to_dict()
    # DDP: two buckets. FSDP: three all-gathers forward, two or three backward, three reduce-scatters.
    assert moved["alone"] == [0]
    assert moved["ddp"] == [2]
    assert all(8 <= count <= 9 for count in moved["fsdp"])
    assert (rows["communication_ms"] > 0).to_list() == [count > 0 for count in rows["communication_kernels"]]
    spans = run.spans
    kinds = spans[spans["span"] == "communicate"].groupby("strategy")["collective"].unique().map(sorted).to_dict()
    assert kinds == {"ddp": ["all_reduce"], "fsdp": ["all_gather", "all_reduce"]} if run.plan.device == "cpu" else kinds


def test_operators_hold_all_the_time_of_all_calls(run):
    rows = run.rows
    operators = rows[rows["entry"] == "operator"]
    keys = ["strategy", "rank"]
    calls = operators.groupby(keys)["calls"].sum()
    assert calls.to_dict() == rows[rows["entry"] == "profile"].set_index(keys)["kernels"].to_dict()
    for _, group in operators.groupby(keys):
        listed = group[group["operator"] != "other"]
        assert len(listed) <= 25
        assert listed["total_us"].is_monotonic_decreasing
    products = operators[operators["operator"] == "addmm"]
    assert set(products["calls"]) <= {3} if len(products) else True
    assert set(operators.loc[operators["operator"] == "gloo:all_reduce", "family"]) <= {"nccl"}


def test_spans_are_few_apart_and_on_one_clock(run):
    spans = run.spans
    assert set(spans["span"]) <= {"compute", "copy", "communicate"}
    assert spans.groupby(["strategy", "rank", "span"]).size().max() <= 400
    for _, group in spans.groupby(["strategy", "rank", "span", "collective"]):
        group = group.sort_values("start_us")
        gaps = group["start_us"].iloc[1:].to_numpy() - group["end_us"].iloc[:-1].to_numpy()
        assert (gaps > 19).all()
    for _, group in spans[spans["strategy"] != "alone"].groupby("strategy"):
        ends = group.groupby("rank").agg(first=("start_us", "min"), last=("end_us", "max"))
        assert ends["first"].max() < ends["last"].min(), "the ranks' steps do not meet"


def test_a_cpu_remembers_nothing(run):
    if run.plan.device == "cpu":
        assert set(run.rows["entry"]) == {"profile", "operator"}


def kernel(name: str, start_us: float, end_us: float, **more) -> FunctionEvent:
    """Give an event as the profiler gives it for a GPU."""
    return FunctionEvent(0, name, 7, start_us, end_us, device_type=DeviceType.CUDA, **more)


def appended(work, events: list, *more) -> list[dict]:
    """Give the rows that a function of the profiler appends for these events."""
    rows = []
    span = lambda what, lane, start_us, end_us, **own: rows.append({"span": what, "at": (start_us, end_us)} | own)  # noqa: E731
    work(SimpleNamespace(rank=0, record=lambda **row: rows.append(row), span=span), events, *more)
    return rows


STEP = [
    kernel("ncclDevKernel_AllGather_RING_LL(Args)", 100, 2100),
    kernel("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", 1100, 4100),
    kernel("Memcpy DtoD (Device -> Device)", 4100, 4600),
    kernel("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(Args)", 5100, 6100),
    kernel("nccl:all_gather", 0, 9000, is_user_annotation=True),
    FunctionEvent(0, "cudaLaunchKernel", 1, 0, 9000),
]


def test_a_gpu_s_account_counts_kernels_and_copies_only():
    events = trace.device_events(STEP)
    (row,) = appended(trace.record_account, events)
    took = {part: row[f"{part}_ms"] for part in ("window", "compute", "communication", "hidden", "exposed", "idle")}
    assert took == pytest.approx(
        {"window": 6.0, "compute": 3.5, "communication": 3.0, "hidden": 1.0, "exposed": 2.0, "idle": 0.5}
    )
    assert (row["kernels"], row["communication_kernels"]) == (4, 2)
    assert appended(trace.record_spans, events, 1e6) == [
        {"span": "communicate", "at": (1000100, 1002100), "collective": "all_gather"},
        {"span": "compute", "at": (1001100, 1004100), "collective": ""},
        {"span": "copy", "at": (1004100, 1004600), "collective": ""},
        {"span": "communicate", "at": (1005100, 1006100), "collective": "reduce_scatter"},
    ]


def test_on_a_cpu_the_outermost_operators_count_and_gloo_s_own_are_its():
    gloo, inside = FunctionEvent(1, "gloo:all_gather", 2, 0, 90), FunctionEvent(2, "aten::copy_", 2, 50, 80)
    outer, inner = FunctionEvent(3, "aten::linear", 1, 0, 40), FunctionEvent(4, "aten::addmm", 1, 5, 35)
    named, below = FunctionEvent(5, "AddmmBackward0", 1, 40, 80), FunctionEvent(6, "aten::mm", 1, 45, 75)
    inner.cpu_parent, below.cpu_parent = outer, named
    assert trace.host_events([gloo, inside, outer, inner, named, below]) == [gloo, outer, below]


def test_the_longest_kernels_have_rows_and_the_rest_one():
    events = [kernel(f"kernel{i}(int)", 1000 * i, 1000 * i + 10 + i) for i in range(30)]
    rows = appended(trace.record_operators, events)
    assert [row["operator"] for row in rows] == [f"kernel{i}" for i in range(29, 4, -1)] + ["other"]
    assert (rows[0]["total_us"], rows[0]["calls"]) == (39, 1)
    assert (rows[-1]["total_us"], rows[-1]["calls"]) == (10 + 11 + 12 + 13 + 14, 5)


def test_a_lane_has_so_many_spans_at_most():
    gathers = [kernel("ncclDevKernel_AllGather_RING_LL(Args)", 100 * i, 100 * i + 30) for i in range(1000)]
    sums = [kernel("ncclDevKernel_AllReduce_Sum_f32(Args)", 100 * i, 100 * i + 85) for i in range(150)]
    spans = appended(trace.record_spans, gathers + sums, 0.0)
    count = {name: sum(span["collective"] == name for span in spans) for name in ("all_gather", "all_reduce")}
    assert count == {"all_gather": 1, "all_reduce": 1}
    spans = appended(trace.record_spans, gathers[:190], 0.0)
    assert [span["at"] for span in spans] == [(100 * i, 100 * i + 30) for i in range(190)]
