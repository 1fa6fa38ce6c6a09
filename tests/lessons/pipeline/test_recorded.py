"""The recorded pipeline: its tables agree with theory, its targets are met, and it is drawn beside a small run."""

import time

import pytest
from figures import drawn

from labkit.engine.recordings import replay
from labkit.provenance import fact, of_source
from labkit.tables.goals import scorecard_of
from labkit.tables.published import published
from lessons import pipeline
from lessons.pipeline.explorer import picture
from lessons.pipeline.tables.throughput import balance, by_layers
from lessons.pipeline.tables.timeline import measured_steps, times_of


@pytest.fixture(scope="module")
def runs():
    return {name: replay(path) for name, path in pipeline.RECORDED.items()}


def test_no_mode_is_above_its_limit(runs):
    table = pipeline.speedups(pipeline.throughput(runs["gpus"]))
    assert (table["share_of_limit"] <= 1.01).all()


def test_predictions_and_forecasts(runs):
    table = pipeline.predictions(runs["schedules"]).set_index("schedule")
    assert (table.loc[["gpipe", "1f1b"], "residual"].abs() < 0.05).all()
    assert (table["in_flight"] == table["in_flight_simulated"]).all()
    assert (table["skew_us"] < 100).all()
    cuts = pipeline.split_forecast(runs["splits"])
    assert abs(cuts.set_index("split").loc["6-2-2-2"]["error"]) < 0.05
    assert (fact(cuts, "fastest"), fact(cuts, "splits")) == ("3-3-3-3", 165)


def test_the_queue_explains_interleaved_and_nothing_is_fitted(runs):
    table = pipeline.predictions(runs["schedules"]).set_index("schedule")
    assert 100 * (table["bubble_simulated"] - table["bubble_measured"]).abs().max() < 3


def test_orange_of_rank_1_is_waiting_in_the_queue(runs):
    """The notebook says 39 ms of orange, which early receives explain, and 0.07 ms of one transfer."""
    ways = (pipeline.BEFORE_USE, pipeline.ONE_QUEUE)
    tables = pipeline.gantt(runs["schedules"], *ways, schedule="interleaved")
    orange = {}
    for table in tables:
        rows = table[(table["kind"] == "T") & (table["rank"] == 1)]
        orange[fact(table, "way")] = (rows["end_ms"] - rows["start_ms"]).sum()
    assert orange["measured"] == pytest.approx(39, abs=0.5)
    assert orange[pipeline.BEFORE_USE] < 5 < 20 < orange[pipeline.ONE_QUEUE]
    times = times_of(measured_steps(runs["schedules"], schedule="interleaved"))
    assert times.transfer == pytest.approx(0.07, abs=0.005)


def test_the_embeddings_memory_and_what_no_split_divides(runs):
    table = pipeline.memory(runs["gpus"])
    rest = by_layers(table).set_index("place")["rest_mib"]
    assert rest.to_dict() == pytest.approx({"first": 780, "inner": 410, "last": 299}, abs=1)
    embedding = 16 * (30522 + 512 + 2) * 768 / 2**20
    assert rest["first"] - rest["inner"] == pytest.approx(embedding, abs=10)


def test_a_measured_timeline_names_its_step(runs):
    figure = pipeline.timelines_chart(*pipeline.gantt(runs["schedules"], schedule="1f1b"))
    assert "last of 2 logged steps" in figure.get_supxlabel()
    assert "logged" not in pipeline.timelines_chart(pipeline.ideal("1f1b")).get_supxlabel()


def test_the_answers_to_the_sliders_questions():
    answers = pipeline.slider_answers().data
    assert "From 28 on" in answers and "with 27 it is 10 %" in answers
    assert "interleaved 1F1B and zero bubble have the shortest step" in answers
    assert "ranks keep activations of 5, 4.3, 3.7 and 3 micro-batches" in picture("interleaved", 4, 8, chunks=3)


def test_an_uneven_split_is_out_of_balance(runs):
    balance_of_ranks = balance(runs["splits"]).set_index(["split", "mode"])
    assert (
        balance_of_ranks.loc[("6-2-2-2", "training"), "stage_time_cv"]
        > 10 * balance_of_ranks.loc[("3-3-3-3", "training"), "stage_time_cv"]
    )


def test_charts(runs, small):
    rates = pipeline.speedups(pipeline.throughput(runs["gpus"]))
    drawn(pipeline.gpus_chart(small(rates), rates, published("pipeline_gpus"), guess=1500.0), 2)
    counts = pipeline.throughput(runs["microbatches"])
    drawn(pipeline.micro_batch_curve(small(counts), counts), 2)
    table = pipeline.predictions(runs["schedules"])
    figure = drawn(pipeline.bubble_chart(small(table.assign(bubble_measured=0.01)), table), 2)
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim(), "panels that are compared share their scale"
    peaks = pipeline.memory(runs["gpus"])
    drawn(pipeline.memory_chart(small(peaks), peaks), 2)
    drawn(pipeline.memory_chart(small(peaks.iloc[:0]), peaks), 1)
    drawn(pipeline.timelines_chart(*pipeline.gantt(runs["gpus"], mode="streaming", ranks=4)), 2)


@pytest.fixture
def small():
    """Return a function that gives a table as if a small run here had measured it."""
    return lambda table: of_source(table.copy(), "measured here", small=True, ranks=2, batch=16)


def test_a_setting_that_was_not_traced_says_what_was(runs):
    with pytest.raises(ValueError, match="was not traced; traced were"):
        pipeline.gantt(runs["schedules"], schedule="dualpipe")


def test_forward_passes_keep_activations_without_no_grad():
    run = replay("h200x2/pipeline/kept")
    peaks = pipeline.memory(run).groupby("mode")["peak_mib"].max()
    assert peaks["kept"] > 10 * peaks["fenced"]
    assert 0.9 < peaks["kept"] / peaks["training"] < 1
    assert scorecard_of(run).empty, "one number of GPUs has no speed-up"
    assert scorecard_of(replay(pipeline.TWO_GPUS)).empty, "the goals are about all GPUs of a node"


def test_scorecard(runs):
    cards = {name: scorecard_of(run) for name, run in runs.items()}
    missed = [row.figure for card in cards.values() for row in card.itertuples() if not row.met]
    assert missed == []


@pytest.mark.parametrize("schedule", ["forward_only", "gpipe", "1f1b", "interleaved", "zero_bubble"])
def test_the_explorer_answers_at_once(schedule):
    def seconds() -> float:
        begun = time.process_time()
        assert "<svg" in picture(schedule, 8, 32, ratio=2.0, slow=2, slowdown=1.5, transfer=0.1)
        return time.process_time() - begun

    assert min(seconds() for _ in range(5)) < 0.15


def test_the_explorer_draws_and_says_what_it_cannot():
    shown = pipeline.explore()
    assert "1F1B" in shown.children[1].value
    with pytest.raises(ValueError, match="equal rounds: not 5 on 2 stages"):
        picture("interleaved", 2, 5)


def test_dropout_and_plain_attention_cost_rate_and_memory():
    """Recorded on two GPUs: each slows every mode, and the plain kernel keeps the scores that training needs again."""
    table = pipeline.as_reported(replay(pipeline.AS_REPORTED)).set_index(["mode", "attention", "dropout"])
    rate, memory = table["samples_per_s"], table["mib_per_gpu"]
    for mode in ("streaming", "kept", "training"):
        assert rate[mode, "fused", 0.0] > rate[mode, "plain", 0.0] > rate[mode, "plain", 0.1]
    assert memory["training", "plain", 0.0] > 1.2 * memory["training", "fused", 0.0]
    assert memory["training", "plain", 0.1] > 1.2 * memory["training", "plain", 0.0]
