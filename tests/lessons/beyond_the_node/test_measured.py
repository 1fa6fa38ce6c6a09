"""Lab 14's measured tables, sentences, charts and targets, on runs in which each claim holds and does not."""

from __future__ import annotations

import figures
import made_beyond_the_node as made
import pytest
from figures import checked

from labkit.engine.errors import PlanError
from labkit.provenance import like
from lessons import beyond_the_node as lab


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
    "share, words", [(0.95, "Each is within 10 %"), (0.6, "Not within 10 % of its rate: 300 Mbit/s")]
)
def test_the_sentence_on_lines_follows_the_share(folder, share, words):
    lines = lab.two_lines(made.messages_run(folder / f"share{share}", share))
    assert words in lab.explain_lines(lines).data
    met = lab.scorecard(made.messages_run(folder / f"card{share}", share))["met"].tolist()
    assert met[:2] == [share == 0.95] * 2 and met[2] is True


def test_two_levels_send_and_take_two_thirds(messages):
    gain = lab.levels_gain(messages)
    assert gain["expected_gain"].eq(1.5).all() and gain["bytes_gain"].to_numpy() == pytest.approx(1.5)
    text = lab.explain_gain(gain).data
    assert "as theory says" in text and "two levels are faster beyond noise" in text


def test_two_levels_that_are_slower_are_said_to_be_so(folder):
    text = lab.explain_gain(lab.levels_gain(made.messages_run(folder / "slower", hierarchical=2.0))).data
    assert "slower beyond noise at 300 Mbit/s and 100 Mbit/s" in text and "are faster" not in text


def test_noise_hides_the_gain(folder):
    run = made.messages_run(folder / "noisy", factors=(0.4, 1.0, 2.5))
    assert "At 2 of 2 rates the two differ by no more than noise" in lab.explain_gain(lab.levels_gain(run)).data


def test_levels_of_another_rate_are_refused(messages):
    with pytest.raises(ValueError, match="no line was fitted between at 7 Mbit/s"):
        lab.levels_at(lab.two_lines(messages), 7, 2, 2)


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
    assert rows.loc[("fsdp", 100), "expected_link_mib"] == pytest.approx(made.FSDP_PASSES * 0.75 * whole)
    assert rows.loc[("hsdp", 100), "expected_link_mib"] == pytest.approx(whole)
    assert rows.loc[("ddp", 100), "expected_link_mib"] == pytest.approx(1.5 * whole)


def test_sentences_on_strategies_flip_with_the_steps(steps, folder):
    text = lab.explain_strategies(lab.strategies(steps)).data
    assert "FSDP sends 2.8× the bytes of HSDP" in text and "HSDP's step is" in text and "theory's bytes" in text
    other = made.strategies_run(folder / "slow", slower={"hsdp": 9}, extra_bytes=2.0)
    text = lab.explain_strategies(lab.strategies(other)).data
    assert "HSDP is slower all the same" in text and "other bytes than theory" in text


def test_accumulation_helps_most_at_the_slowest_link(steps, folder):
    table = lab.strategies(steps)
    assert "No bucket size is faster" in lab.explain_turning(table).data
    assert (
        "At 100 Mbit/s, 4 micro-batches per step take the efficiency from 14 % to 40 %."
        in lab.explain_turning(table).data
    )
    noisy = made.strategies_run(folder / "noisy steps", factors=(0.3, 1.0, 3.0))
    assert "within noise" in lab.explain_turning(lab.strategies(noisy)).data
    worse = like(table.assign(step_ms=table["step_ms"].where(table["bucket_mb"] != 0.1, 9 * table["step_ms"])), table)
    assert "beats 0.1 MiB by" in lab.explain_turning(worse).data


def test_points_lie_in_the_band_or_are_said_not_to(steps, messages, folder):
    lines = lab.two_lines(messages)
    table = lab.strategies(steps, lines)
    count = len(table[table["strategy"] != "alone"])
    slow = lab.strategies(made.strategies_run(folder / "far", slower={"ddp": 5, "fsdp": 5, "hsdp": 5}), lines)
    assert f"**0 of {count} measured efficiencies" in lab.explain_efficiency(slow).data
    rows = table[table["strategy"] != "alone"]
    inside = like(table.assign(efficiency=(table["least_efficiency"] + table["most_efficiency"]) / 2), table)
    assert f"**{len(rows)} of {count} measured" in lab.explain_efficiency(inside).data


@pytest.mark.parametrize("worse, words", [(0.5, "ends 0.50 nats higher."), (0.0, "no more than the seeds differ")])
def test_local_steps_save_bytes_and_may_cost_loss(folder, worse, words):
    table = lab.exchanges(made.local_run(folder / f"local{worse}", worse))
    assert table["times_less"].tolist() == pytest.approx([1, 16])
    assert table["link_mib"].to_numpy() == pytest.approx(made.HEADERS * table["expected_link_mib"].to_numpy())
    text = lab.explain_local_steps(table).data
    assert "sends 16× less" in text and words in text and "All ranks end with the same weights" in text


def test_ranks_that_end_apart_are_told(folder):
    run = made.local_run(folder / "apart", apart=0.25)
    assert "Ranks end 0.250 apart" in lab.explain_local_steps(lab.exchanges(run)).data
    assert lab.scorecard(run)["met"].tolist() == [True, False]


def test_targets_need_two_nodes(folder, messages, steps):
    assert len(lab.targets_of([messages, steps])) == 5
    alone = made.write_run(folder / "one", made.Messages.small(gpus=4), made.CPU)
    assert lab.scorecard(alone).empty


def test_every_chart_draws(messages, steps, folder):
    sent, lines = lab.messages(messages), lab.two_lines(messages)
    table = lab.strategies(steps, lines)
    drawn = {
        "lines": checked(lab.lines_chart((sent, lines), (sent, lines), guess=80)),
        "strategies": checked(lab.strategies_chart(table)),
        "turning": checked(lab.turning_chart(table)),
        "efficiency": checked(lab.efficiency_chart(table)),
        "local": checked(lab.local_steps_chart(lab.local_steps(made.local_run(folder / "drawn")))),
    }
    assert len(drawn["lines"].axes) == 1, "one run that is given twice is drawn once"
    assert "2 network namespaces of one machine" in drawn["strategies"].get_supxlabel()


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
    assert lab.Messages.small().link_mbit == (1000, 300, 100)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert lab.Messages.small().link_mbit == (0,) == lab.LocalSteps.small().link_mbit
