"""Each sentence of lab 02 follows its table: said where the claim holds, its opposite where it does not."""

import pandas as pd
import pytest
from made import attributed

from labkit.story.words import SMALL_NOTE
from lessons import broadcast

NAN = float("nan")


def methods(*rows, small=False):
    """Give a methods table from (method, memory, chunks, seconds, spread, and what differs from a good row)."""
    made = [
        {
            "method": method,
            "memory": memory,
            "chunks": chunks,
            "seconds": seconds,
            "spread_seconds": spread,
            "status": "ok",
            "verdict": "ok",
            "share_of_links": 0.0213 / seconds,
        }
        | more
        for method, memory, chunks, seconds, spread, more in rows
    ]
    return attributed(made, small=small)


LINKS = ("links", "pinned", 1, 0.0213, 0.0001, {"share_of_links": 1.0})
DIRECT = ("direct", "pinned", 1, 0.083, 0.001, {})
PIPED = ("pipelined", "pinned", 32, 0.079, 0.001, {})
SCATTER = ("scatter_all_gather", "pinned", 16, 0.0217, 0.0001, {})
WRONG = ("staged", "pinned", 1, NAN, NAN, {"status": "wrong copy on GPU 2", "verdict": "not measured"})


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            methods(LINKS, DIRECT, PIPED, SCATTER),
            (
                "**scatter + all-gather from pinned memory, 16 chunks**, 21.7 ms",
                "3.8×",
                "The fastest, scatter + all-gather, takes a time 1.9 % above",
                "All 4 settings",
            ),
            "noise",
        ),
        (methods(LINKS, DIRECT, PIPED), ("The fastest, pipelined,", "3.7× that of `links`"), "noise"),
        (methods(LINKS, DIRECT, (*PIPED[:4], 0.004, {})), ("within noise",), "Fastest"),
        (methods(LINKS, DIRECT, (*PIPED[:3], 0.083, 0.001, {})), ("within noise",), "Fastest"),
        (methods(LINKS, (*SCATTER[:3], 0.0212, 0.0, {})), ("One setting was right",), "below"),
        (methods(LINKS, PIPED, (*SCATTER[:3], 0.0210, 0.0, {})), ("1.4 % below",), "above"),
        (methods(LINKS, PIPED, SCATTER, WRONG), ("1 of 4 settings failed (wrong copy on GPU 2)",), "All 4"),
        (methods(LINKS, WRONG), ("No setting brought right copies",), "astest"),
        (methods(LINKS, PIPED), ("One setting was right, pipelined from pinned memory, 32 chunks: 79.0 ms.",), "above"),
        (
            methods(LINKS, PIPED, (*SCATTER[:5], {"verdict": "impossible"})),
            ("1 settings are faster than the datasheet",),
            "wrong copy",
        ),
        (methods(DIRECT, (*PIPED[:5], {"share_of_links": NAN}), small=True), (SMALL_NOTE,), "links` from"),
    ],
)
def test_methods(table, said, unsaid):
    text = broadcast.explain_methods(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def ablation(direct, pipelined, scatter=(0.418, 0.0217), small=False):
    rows = [("direct", *direct), ("pipelined", *pipelined), ("scatter_all_gather", *scatter)]
    table = pd.DataFrame(rows, columns=["method", "pageable_seconds", "pinned_seconds"])
    table.attrs |= {"small": small, "source": "made"}
    return table


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            ablation((1.66, 0.083), (0.42, 0.079)),
            (
                "**Pinning counts for more than the path**: 10× against 2.0×",
                "From pinned memory the pipelined path gains nothing over direct; from pageable memory it gains 4.0×",
                "pinning makes one copy 5.3× as fast",
            ),
            "The path counts",
        ),
        (ablation((1.0, 0.25), (0.3, 0.1)), ("**Pinning counts for more", "path gains 2.5× over direct"), "one copy"),
        (ablation((1.0, 0.95), (0.3, 0.2)), ("**The path counts for more than pinning**",), "**Pinning"),
        (ablation((1.0, 0.5), (0.5, 0.25)), ("count for the same: 2.0× and 2.0×",), "counts for more"),
        (
            ablation((1.0, 0.5), (1.0, 0.5)),
            ("path gains nothing over direct; from pageable memory it gains nothing",),
            "one copy",
        ),
        (ablation((1.0, NAN), (0.9, NAN), small=True), ("cannot separate the two causes", SMALL_NOTE), "counts"),
        (ablation((1.0, 0.5), (0.9, NAN)), ("lacks direct or pipelined",), "counts"),
        (ablation((NAN, 0.5), (0.9, 0.4)), ("lacks direct or pipelined",), "counts"),
    ],
)
def test_pinning(table, said, unsaid):
    text = broadcast.explain_pinning(broadcast.causes(table), table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


@pytest.mark.parametrize(
    ("scatter", "said"),
    [
        ((0.4, 0.0217), "the path of scatter + all-gather helps**: it is 3.6×"),
        ((0.4, 0.078), "gains nothing over"),
        ((0.4, NAN), "Pinning counts for more"),
    ],
)
def test_scatter(scatter, said):
    table = ablation((1.66, 0.083), (0.42, 0.079), scatter)
    assert said in broadcast.explain_pinning(broadcast.causes(table), table).data


@pytest.mark.parametrize(
    ("direct", "spread", "said"),
    [
        (218.9, 1.0, ("carry 2.5 % more GB/s", "beyond noise (± 0.94 %)", "4.00 GiB would take 19.6 ms")),
        (218.9, 3.0, ("carry 2.5 % more GB/s", "within noise (± 2.8 %)")),
        (200.0, 1.0, ("Direct moves no more",)),
        (NAN, 1.0, ("no pinned",)),
    ],
)
def test_host_rates(direct, spread, said):
    rates = {"gb_per_s": [213.6, direct], "ms": [20.1, 78.5], "through_host_links_gib": [4.0, 16.0]}
    rates["spread_gb_per_s"] = [spread, spread]
    table = pd.DataFrame({"method": ["links", "direct"]} | rates)
    text = broadcast.explain_host_rates(table).data
    assert all(part in text for part in said), text
    assert ("not the least time" in text) == (direct == 218.9 and spread == 1.0)


def ring(pageable=400.0, ring_ms=120.0, pinned=80.0, spread=1.0):
    names = {"pageable": pageable, "pageable, through a pinned ring": ring_ms, "pinned": pinned}
    rows = [
        {
            "source": name,
            "chunks": 8,
            "ms": ms,
            "spread_ms": spread,
            "gb_per_s": 10.0,
            "times_pinned": ms / (pinned or NAN),
        }
        for name, ms in names.items()
        if ms
    ]
    return attributed(rows, small=False)


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (ring(), ("is 3.3× as fast as from pageable memory.", "50 % longer than a source that is pinned"), "pay"),
        (ring(ring_ms=500.0), ("is 0.80× as fast as from pageable memory: the ring does not pay.",), "noise"),
        (ring(spread=200.0), ("no difference beyond noise", "50 % longer"), "pay"),
        (ring(pinned=0.0), ("3.3×",), "a source that is pinned"),
        (ring(ring_ms=79.0), ("1.2 % less than a source",), "longer"),
        (ring(ring_ms=0.0), ("did not measure the ring",), "×"),
    ],
)
def test_ring(table, said, unsaid):
    text = broadcast.explain_ring(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def chunks(seconds, method="pipelined", memory="pinned", spread=0.0005):
    rows = [(method, memory, c, s, spread, {}) for c, s in seconds.items()]
    return methods(*rows) if rows else methods(PIPED).iloc[:0]


@pytest.mark.parametrize(
    ("table", "said", "unsaid"),
    [
        (
            chunks({4: 0.0865, 32: 0.079, 128: 0.082}),
            ("Pipelined from pinned memory: **32 chunks** are fastest", "4 chunks take 9.5 % longer"),
            "within",
        ),
        (chunks({4: 0.0865, 32: 0.079}, spread=0.004), ("no difference beyond noise",), "fastest"),
        (chunks({4: 0.09, 32: 0.0788, 64: 0.0787, 128: 0.0788}), ("32, 64 and 128 chunks are within 1.0 %",), "noise"),
        (chunks({4: 0.08, 32: 0.08}), ("no difference beyond noise",), "fastest"),
        (chunks({16: 0.08}), ("only 16 chunks were measured",), "fastest"),
        (chunks({4: 0.08, 32: NAN}), ("only 4 chunks",), "fastest"),
        (chunks({4: NAN}), ("No chunked broadcast was measured.",), "fastest"),
        (chunks({}), ("No chunked broadcast was measured.",), "fastest"),
    ],
)
def test_chunks(table, said, unsaid):
    table.attrs["small"] = False
    text = broadcast.explain_chunks(table).data
    assert all(part in text for part in said), text
    assert unsaid not in text


def test_chunks_are_told_per_method_and_memory():
    slow = chunks({4: 0.42, 32: 0.40}, memory="pageable")
    other = chunks({4: 0.024, 32: 0.0217}, method="scatter_all_gather", spread=0.0001)
    table = pd.concat([slow, chunks({4: 0.08, 32: 0.08}), other])
    table.attrs["small"] = False
    text = broadcast.explain_chunks(table).data
    assert text.count("\n- ") == 2
    assert "Pipelined from pageable memory: **32 chunks**" in text
    assert "Scatter + all-gather from pinned memory: **32 chunks**" in text


def test_one_number_of_chunks_for_all_is_the_one_with_the_least_loss():
    """4 chunks lose most with one method and 32 with the other; 8 lose little with both."""
    made = chunks({4: 0.09, 8: 0.081, 32: 0.08}), chunks({4: 0.40, 8: 0.41, 32: 0.48}, memory="pageable")
    table = pd.concat(made)
    table.attrs["small"] = False
    text = broadcast.explain_chunks(table).data
    assert "**Take 8 chunks" in text
    assert "at most 2.5 % longer" in text
