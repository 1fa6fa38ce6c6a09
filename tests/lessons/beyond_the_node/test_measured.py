"""Lab 14's measured tables, sentences, charts and targets, on runs in which each claim holds and does not."""

from __future__ import annotations

import figures
import made_beyond_the_node as made
import pytest
from figures import checked

from labkit.engine.errors import PlanError
from labkit.engine.recordings import replay
from labkit.provenance import made_from
from labkit.tables.goals import scorecard_of
from lessons import beyond_the_node as lab
from lessons.beyond_the_node.exercises import judge_messages


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "MiB", "Mbit/s", "efficiency", "nats", "step"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def messages(folder):
    return made.messages_run(folder / "messages")


@pytest.fixture(scope="module")
def steps(folder):
    return made.strategies_run(folder / "strategies")


def test_a_line_is_the_rates_share_and_the_latency(messages):
    lines = lab.two_lines(messages).set_index(["place", "link_mbit"])
    assert lines.loc[("inside", 0), "beta_gb_per_s"] == pytest.approx(made.INSIDE_GB_PER_S, rel=1e-6)
    for rate in (300, 100):
        assert lines.loc[("between", rate), "share_of_rate"] == pytest.approx(0.95, rel=1e-6)
        assert lines.loc[("between", rate), "alpha_us"] == pytest.approx(1e6 * made.ALPHA_S, rel=1e-6)


@pytest.mark.parametrize(
    ("share", "part"),
    [
        (0.95, "✔ **every line"),
        (0.6, "○ **slower than the rate that was set: 300 Mbit/s"),
        (1.4, "✘ **not the rate that was set: 300 Mbit/s"),
    ],
)
def test_the_verdict_on_lines_follows_the_share(folder, share, part):
    run = made.messages_run(folder / f"share{share}", share)
    said = lab.lines_are_rates(lab.two_lines(run)).data
    assert part in said and "say nothing about GPUs" in said
    on_gpus = lab.lines_are_rates(counting(lab.two_lines(run))).data
    assert ("✘ **not the rate" in on_gpus) == (share != 0.95)
    met = scorecard_of(run).set_index("figure")["met"]
    assert [met[f"line between nodes, from the rate set, {rate} Mbit/s"] for rate in (300, 100)] == [share == 0.95] * 2


def counting(table):
    """Return the table of a run whose times may be compared."""
    return made_from(table.copy(), table, on_cpu=False)


def test_two_levels_send_and_take_two_thirds(messages):
    gain = counting(lab.levels_gain(messages))
    assert gain["expected_gain"].eq(1.5).all() and gain["bytes_gain"].to_numpy() == pytest.approx(1.5)
    said = lab.fewer_bytes(gain).data
    assert "sends 1.5× the bytes" in said and "With the largest message it also takes longer at every rate" in said
    on_cpus = lab.fewer_bytes(lab.levels_gain(messages)).data
    assert on_cpus.startswith("Here: **One flat ring sends 1.5×") and "longer" not in on_cpus


@pytest.mark.parametrize("counted", [1.0, float("nan")], ids=["both ways alike", "nothing"])
def test_an_interface_that_does_not_count_the_messages_is_told(messages, counted):
    gain = lab.levels_gain(messages)
    said = lab.fewer_bytes(made_from(gain.assign(bytes_gain=counted), gain)).data
    assert "✘ The interface counts other bytes than theory." in said and "sends" not in said


def test_two_levels_that_are_slower_or_within_noise_are_said_to_be_so(folder):
    slower = lab.levels_gain(made.messages_run(folder / "slower", hierarchical=2.0))
    assert "slower all the same at 100 Mbit/s" in lab.fewer_bytes(counting(slower)).data
    noisy = lab.levels_gain(made.messages_run(folder / "noisy", factors=(0.4, 1.0, 2.5)))
    assert "no more than noise" in lab.fewer_bytes(counting(noisy)).data


def test_yours_stands_beside_the_reference_solution(folder, messages):
    gain = lab.levels_gain(made.messages_run(folder / "yours", yours=1.0))
    said = lab.fewer_bytes(gain, lab.levels_gain(messages)).data
    assert "Yours sends as many as the reference solution." in said and "yours, ms" in said and "nan" not in said
    more = lab.levels_gain(made.messages_run(folder / "more", yours=2.0))
    assert "Yours sends 2.0× those of the reference solution." in lab.fewer_bytes(more).data
    assert "Yours" not in lab.fewer_bytes(lab.levels_gain(messages)).data


@pytest.mark.parametrize(
    ("yours", "status", "kind"),
    [(1.0, "ok", None), (2.0, "ok", "counted"), (1.0, "wrong result", "over_nodes")],
)
def test_an_all_reduce_over_nodes_is_judged_by_its_sums_and_by_the_interfaces_bytes(folder, yours, status, kind):
    run = made.messages_run(folder / f"judged {yours} {status}", yours=yours, status=status)
    verdict = judge_messages(run)
    assert [*verdict.faults] == ([kind] if kind else []), verdict
    if kind == "over_nodes":
        assert verdict.faults[kind] == "on 2 nodes an all-reduce of 64 KiB gives wrong sums"
    if not kind:
        counted, took = verdict.merits
        assert counted == (
            "on 2 nodes, in an all-reduce of 1 MiB, a node's interface sends 1.05 MiB with yours, 1.05 MiB with the "
            "reference solution and 1.57 MiB with one flat ring"
        )
        assert took == (
            "yours takes 1.0× the reference solution's time and 0.67× one flat ring's "
            "(4 CPU processes, link at 100 Mbit/s)"
        )


def test_bytes_that_no_interface_counts_are_not_judged(folder):
    run = made.messages_run(folder / "uncounted", yours=2.0, headers=0.001)
    verdict = judge_messages(run)
    assert verdict.outcome == "right" and len(verdict.merits) == 1, verdict
    more = lab.levels_gain(run).assign(bytes_gain=1.0)
    assert "Yours" not in lab.fewer_bytes(made_from(more, lab.levels_gain(run))).data


def test_a_rate_without_a_line_is_refused(steps, messages):
    lines = lab.two_lines(messages)
    with pytest.raises(ValueError, match="no line was fitted between at 100 Mbit/s"):
        lab.strategies(steps, lines[lines["link_mbit"] != 100])


def test_a_step_has_its_bytes_and_its_efficiency(steps, messages):
    table = lab.strategies(steps, lab.two_lines(messages))
    rows = table[table["expected_link_mib"] > 0]
    assert (rows["link_mib"] / rows["expected_link_mib"]).to_numpy() == pytest.approx(made.HEADERS)
    hsdp = rows[(rows["strategy"] == "hsdp") & (rows["link_mbit"] == 100)].iloc[0]
    sending_ms = 8e-3 * made.GRADIENT_BYTES / 100
    assert hsdp["efficiency"] == pytest.approx(made.COMPUTE_MS / (made.COMPUTE_MS + sending_ms))
    assert (rows["least_efficiency"] <= rows["most_efficiency"]).all()
    four = rows[(rows["strategy"] == "ddp") & (rows["accumulation"] == 4)]
    assert (four["compute_ms"] == 4 * made.COMPUTE_MS).all()


def test_fsdp_over_gloo_makes_four_passes_but_for_the_root(steps):
    rows = lab.strategies(steps).drop_duplicates(["strategy", "link_mbit"]).set_index(["strategy", "link_mbit"])
    whole = made.GRADIENT_BYTES / 2**20
    assert rows.loc[("fsdp", 100), "expected_link_mib"] == pytest.approx(sum(made.FSDP_PASSES.values()) * 0.75 * whole)
    assert rows.loc[("hsdp", 100), "expected_link_mib"] == pytest.approx(whole)
    assert rows.loc[("ddp", 100), "expected_link_mib"] == pytest.approx(1.5 * whole)


def test_sharded_steps(steps, folder):
    on_cpus = lab.sharded_steps(lab.strategies(steps)).data
    assert "Here: **bytes are theory's to within 4.7 %.**" in on_cpus and "as fast" not in on_cpus
    said = lab.sharded_steps(counting(lab.strategies(steps))).data
    assert "**at 100 Mbit/s HSDP's step is" in said and "Bytes are theory's to within 4.7 %" in said
    assert "DDP's is slower than HSDP's" in said
    other = made.strategies_run(folder / "slow", slower={"hsdp": 9}, extra_bytes=2.0)
    said = lab.sharded_steps(counting(lab.strategies(other))).data
    assert (
        "HSDP is slower all the same" in said
        and "DDP's is shorter than HSDP's, though it sends more." in said
        and "✘ The interface counts other bytes" in said
    )


def test_which_knob(steps, folder):
    table = lab.strategies(steps)
    said = lab.which_knob(table).data
    assert "Here: **at 100 Mbit/s accumulation takes the efficiency from 14 % to 40 %.** No bucket size" in said
    noisy = lab.strategies(made.strategies_run(folder / "noisy steps", factors=(0.3, 1.0, 3.0)))
    assert "by no more than noise" in lab.which_knob(noisy).data
    worse = made_from(
        table.assign(step_ms=table["step_ms"].where(table["bucket_mb"] != 0.1, 9 * table["step_ms"])), table
    )
    assert lab.which_knob(worse).data.endswith("The size of buckets matters at every rate.")


def test_a_readers_cpus_are_not_judged(steps):
    here = lab.strategies(steps)
    there = made_from(here.copy(), here)
    there.attrs |= {"source": "recorded on two nodes", "recorded": True}
    assert lab.judged(here, there) is there and lab.judged(counting(here), there) is not there
    assert lab.within_band(here).data == ""
    said = lab.sharded_steps(here, there).data
    assert "Here: **bytes" in said and "\n\nRecorded: **at 100 Mbit/s" in said


def test_points_lie_in_the_band_or_are_said_not_to(steps, messages, folder):
    lines = lab.two_lines(messages)
    table = lab.strategies(steps, lines)
    count = len(table[table["plain"] & (table["strategy"] != "alone")])
    slow = lab.strategies(made.strategies_run(folder / "far", slower={"ddp": 5, "fsdp": 5, "hsdp": 5}), lines)
    assert (
        f"**the lines promise too much: {count} of {count} efficiencies lie below their band**"
        in lab.within_band(counting(slow)).data
    )
    inside = made_from(table.assign(efficiency=(table["least_efficiency"] + table["most_efficiency"]) / 2), table)
    assert f"**all {count} efficiencies lie in their band.**" in lab.within_band(counting(inside)).data
    above = made_from(table.assign(efficiency=1.5 * table["most_efficiency"]), table)
    assert f"**{count} of {count} efficiencies lie above their band.**" in lab.within_band(counting(above)).data


@pytest.mark.parametrize(("worse", "part"), [(0.5, "ends 0.50 nats higher"), (0.0, "within the seeds' spread")])
def test_local_steps_save_bytes_and_may_cost_loss(folder, worse, part):
    table = lab.exchanges(made.local_run(folder / f"local{worse}", worse))
    assert table["times_less"].tolist() == pytest.approx([1, 16])
    assert table["link_mib"].to_numpy() == pytest.approx(made.HEADERS * table["expected_link_mib"].to_numpy())
    said = lab.local_steps_cost(table).data
    assert "every 16 steps sends 16× less" in said and part in said and "✘" not in said


def test_ranks_that_end_apart_are_told(folder):
    run = made.local_run(folder / "apart", apart=0.25)
    assert "✘ **Ranks end with different weights" in lab.local_steps_cost(lab.exchanges(run)).data


def test_measures_need_two_nodes(folder, messages, steps):
    assert sum(len(scorecard_of(run)) for run in (messages, steps)) == 4
    alone = made.write_run(folder / "one", made.Messages.small(gpus=4), made.CPU)
    assert scorecard_of(alone).empty


def test_one_minute_says_what_each_run_shows(messages, steps, folder):
    runs = {"messages": messages, "strategies": steps, "localsteps": made.local_run(folder / "minute")}
    said = lab.in_one_minute(runs, runs).data
    assert "not measured" not in said and "16× fewer bytes with one exchange in 16 steps; loss 3.50 ± 0" in said
    runs["localsteps"] = made.local_run(folder / "one seed", seeds=(0,))
    said = lab.in_one_minute(runs, runs).data
    assert "loss 3.50 instead of 3.50, of one seed" in said and "±" not in said
    kept = {name: replay(path) for name, path in lab.RECORDED.items()}
    assert "| here |" in lab.in_one_minute(runs, kept).data and "| here |" not in lab.in_one_minute(kept, kept).data


def test_one_minute_gives_no_ratio_where_times_do_not_grow_with_bytes(steps, folder, monkeypatch):
    monkeypatch.setattr(made, "INSIDE_GB_PER_S", -10.0)
    shrinking = made.messages_run(folder / "shrinks")
    runs = {"messages": shrinking, "strategies": steps, "localsteps": made.local_run(folder / "beside")}
    said = lab.in_one_minute(runs, runs).data
    assert "| no rate: these times do not grow with the message's bytes |" in said and "no value" not in said


def test_every_chart_draws(messages, steps, folder):
    sent, lines = lab.messages(messages), lab.two_lines(messages)
    table = lab.strategies(steps, lines)
    figure = checked(lab.lines_chart((sent, lines), (sent, lines), guess=80))
    assert len(figure.axes) == 1, "one run that is given twice is drawn once"
    assert figure.axes[0].get_title(loc="left").endswith("all-reduce of 2 ranks")
    eight = made_from(lines.assign(ranks=lines["ranks"].where(lines["place"] == "between", 8)), lines)
    assert lab.lines_chart((sent, eight)).axes[0].get_title(loc="left").endswith("all-reduce of 2 or 8 ranks")
    for draw in (lab.strategies_chart, lab.turning_chart, lab.efficiency_chart):
        checked(draw(table))
    checked(lab.local_steps_chart(lab.local_steps(made.local_run(folder / "drawn"))))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lab.Messages.small(link_mbit=()),
        lambda: lab.Strategies.small(link_mbit=(0.5,)),
        lambda: lab.Strategies.small(strategies=("zero9",)).points(),
        lambda: lab.LocalSteps.small(every=(5,)),
        lambda: lab.Messages.small(gpus=1),
    ],
)
def test_knobs_that_mean_nothing_are_refused(make):
    with pytest.raises(PlanError):
        make()


def test_the_rate_of_a_clusters_links_is_not_set(monkeypatch):
    assert lab.Messages.small().link_mbit == (1000, 100)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert lab.Messages.small().link_mbit == (0,) == lab.LocalSteps.small().link_mbit
