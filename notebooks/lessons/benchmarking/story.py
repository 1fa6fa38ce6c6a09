"""Tables of lab 06 → verdicts: each compares on its table before it says one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pandas as pd
from IPython.display import Markdown

from labkit.provenance import by_place, fact, place_name
from labkit.story import units
from labkit.story.verdict import folded, one_minute, verdict
from labkit.story.words import as_table, listed, resolved
from labkit.theory.transformer import NAMES as SIZE_NAMES
from lessons.benchmarking import tables
from lessons.benchmarking.theory import NAMES, PRECISION_NAMES

if TYPE_CHECKING:
    from labkit.engine.run import Run

_GAIN = 1.05  # a factor below this is no gain
_EXPLAINED = 0.10  # of a measured time: what the launch model may miss
_CLOSE = 0.03  # of the clock: two clocks that agree
_LARGE = 0.03  # of a step: operators that a table shows
_NO_GPU = "no GPU"


def larger_is_faster(table: pd.DataFrame, launches: pd.DataFrame) -> Markdown:
    """Say whether the eager bfloat16 forward of 2.7b is faster than that of xl, which has fewer parameters.

    Takes `steps`, and the kernels of each size from `launches`. Also says whether float32 turns it round. The table
    leaves out the smallest size, whose time is asked for further down the page.
    """
    eager = table[(table["mode"] == "eager") & (table["phase"] == "forward")].set_index("model")
    rows = eager[eager["precision"] == "autocast"]
    deep, large = rows.loc["xl"], rows.loc["2.7b"]
    times = f"{units.number(large['ms'])} against {units.number(deep['ms'])} ms"
    if not resolved(deep["ms"], large["ms"], deep["spread_ms"], large["spread_ms"]):
        return verdict(f"Eager, the largest size and the deepest one take the same time within noise: {times}.")
    if large["ms"] > deep["ms"]:
        return verdict(f"Eager in bfloat16, the largest size is slower than the deepest one: {times}.")
    wide = eager[eager["precision"] == "float32"]["ms"]
    turned = " In float32 it is slower." if wide["2.7b"] > wide["xl"] else ""
    work = f"{units.number(large['flop'] / deep['flop'], 2)} times the work"
    sentence = f"**Eager in bfloat16, the largest size is faster than the deepest one, with {work}.**"
    kernels = launches[launches["axis"] == "model"].set_index("model")["kernels"]
    fewer = f"It launches {units.count(kernels['2.7b'])} kernels, the deepest one {units.count(kernels['xl'])}."
    per_launch = {"layers": rows["layers"], "kernels": kernels, "eager ms": rows["ms"]}
    shown = pd.DataFrame(per_launch).reindex(rows.index.drop("small")).assign(us=1e3 * rows["ms"] / kernels)
    shown["kernels"] = shown["kernels"].map(units.count)
    shown = shown.rename_axis("model").reset_index().rename(columns={"us": "µs per kernel"})
    apart = shown["µs per kernel"].max() / shown["µs per kernel"].min()
    summary = f"Four sizes' time per kernel: the host's speed changes, here by up to {units.times(apart)}"
    return verdict(f"{sentence} {fewer}{turned}", shown, summary=summary)


def first_iteration(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how many times as long as later ones the very first forward takes, in both runs; takes `iterations`."""
    times = {place: units.times(table.iloc[0]["times_later"]) for place, table in by_place(here, recorded).items()}
    said = listed(f"{factor} as long {place}" for place, factor in times.items())
    return verdict(f"**Beside later ones, the first forward of a process takes {said}.**")


def mean_or_median(table: pd.DataFrame) -> Markdown:
    """Say what keeping the first iterations does to the mean and to the median of a forward; takes `warm_ups`."""
    rows = table[table["phase"] == "forward"].set_index("warm_ups")
    mean, median = (rows[f"{name}_ms"].iloc[0] / rows[f"{name}_ms"].iloc[-1] for name in ("mean", "median"))
    names = {"warm_ups": "iterations dropped", "mean_ms": "mean ms", "std_ms": "± (standard deviation)"}
    names |= {"median_ms": "median ms", "spread_ms": "± (half the quartiles' distance)"}
    shown = table.assign(phase=table["phase"].map(NAMES)).drop(columns="count").rename(columns=names)
    if abs(mean - 1) <= abs(median - 1):
        return verdict("The first iterations do not move the mean more than the median.", shown)
    sentence = f"**Without warm-ups, {place_name(table)}, a forward's mean is {units.times(mean)} as large"
    return verdict(f"{sentence}**, its median {units.times(median)}.", shown)


def faster_units(table: pd.DataFrame, accounts: pd.DataFrame) -> Markdown:
    """Say where bfloat16 makes an eager step faster than float32, and where it does not.

    Takes `steps`, and the kernels of a step from `accounts`, of the sizes that were profiled.
    """
    eager = table[(table["mode"] == "eager") & (table["phase"] == "step")]
    wide = eager.pivot_table(index="model", columns="precision", values="ms", aggfunc="first", sort=False)
    gains = wide[["float32"]].to_numpy() / wide
    shown = pd.DataFrame({"model": wide.index, "float32 ms": wide["float32"].to_numpy()})
    for precision in wide.columns.drop("float32"):
        shown[f"times as fast in {PRECISION_NAMES[precision]}"] = gains[precision].to_numpy()
    counted = accounts[accounts["phase"] == "step"].set_index(["precision", "model"])["kernels"]
    for precision in (name for name in ("float32", "autocast") if name in counted):
        of_size, name = counted[precision].reindex(wide.index), PRECISION_NAMES[precision]
        shown[f"kernels in {name}"] = ["–" if pd.isna(many) else units.count(many) for many in of_size]
        per_kernel = (1e3 * wide[precision] / of_size).tolist()
        shown[f"µs per kernel in {name}"] = ["–" if pd.isna(us) else units.number(us) for us in per_kernel]
    gain = gains["autocast"]
    slower = [f"`{model}`" for model in gain.index[gain < 1 / _GAIN]]
    alike = [f"`{model}`" for model in gain.index[(gain >= 1 / _GAIN) & (gain < _GAIN)]]
    if len(slower) + len(alike) == len(gain):
        return verdict("**bfloat16 makes no step faster.**", shown)
    lost = [f"{what} in {listed(models)}" for what, models in (("slower", slower), ("no gain", alike)) if models]
    most = f"up to {units.times(gain.max())} as fast {place_name(table)}"
    in_tf32 = gains.get("tf32", pd.Series(dtype=float))
    host = [f"`{model}`" for model in in_tf32.index[in_tf32 < 1 / _GAIN] if f"`{model}`" in slower]
    also = (
        f" In TF32, which casts nothing, {listed(host)} {'are' if len(host) > 1 else 'is'} slower, too: that is the "
        "host's speed."
        if host
        else ""
    )
    return verdict(f"bfloat16 makes a step {most}{f'; **{listed(lost)}**' if lost else ''}.{also}", shown)


def launches_or_fusion(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say what launches and what fusion cost an eager forward, of this run where it has CUDA graphs; takes `modes`."""
    table = here if here["graph_ms"].notna().any() else recorded
    rows = table[table["phase"] == "forward"].dropna(subset=["graph_ms", "compiled_ms", "compiled_graph_ms"])
    first = rows.iloc[0]
    bound = [f"`{row.model}`" for row in rows.itertuples() if row.launches > _GAIN]
    names = {"launches": "gain without launches", "fusion": "gain by fusion", "compiling": "gain by compiling"}
    shown = rows[["model", *names]].rename(columns=names)
    where = place_name(table).capitalize()
    if not bound:
        return verdict(f"**{where} no size is launch-bound in bfloat16.**", shown)
    is_every = len(bound) == len(SIZE_NAMES)  # a run may lack some
    sizes = "every size is" if is_every else f"{listed(bound)} {'are' if len(bound) > 1 else 'is'}"
    gains = f"{units.times(first['launches'])} as fast without launches, at the host's speed just then"
    gains += f"; fusion then gains {units.times(first['fusion'])}"
    longer = [f"`{row.model}`" for row in rows.itertuples() if row.compiling < 1 / _GAIN]
    tail = f" Compiling without graphs makes {listed(longer)} slower." if longer else ""
    sentence = f"**{where} {sizes} launch-bound when eager, in bfloat16.** `{first['model']}` is {gains}.{tail}"
    return verdict(sentence, shown)


def launch_model(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say how well launches and work predict the five sizes, of this run where it has a GPU; takes `launches`."""
    table = recorded if here["gpu_ms"].isna().all() else here
    sizes = table[table["axis"] == "model"]
    error, knee = sizes["error"].abs().max(), fact(table, "knee_width")
    names = {"kernels": "kernels", "eager_ms": "measured ms", "predicted_ms": "predicted ms"}
    names |= {"launch_us": "small forward's µs per launch", "gpu_us": "GPU's µs per kernel"}
    shown = sizes[["model", *names]].rename(columns=names)
    if knee == float("inf"):
        turn = "No width of the sweep keeps the GPU busy."
    else:
        turn = f"From a width of {units.count(knee)} on, the GPU is the limit."
    claim = "The model predicts" if error <= _EXPLAINED else "**The model misses**"
    verb = "within" if error <= _EXPLAINED else "by up to"
    others = table[table["axis"] != "model"]["error"].abs().max()
    sentence = f"{claim} the forward of each size {verb} {units.percent(error)} {place_name(table)}"
    sentence += f", and the sweeps' other points {verb} {units.percent(others)}. {turn}"
    facts = ("launch_us", "low_us", "high_us", "layer_kernels", "layer_host_us", "layer_gpu_us")
    launch, low, high, kernels, host, gpu = (units.number(fact(table, name)) for name in facts)
    more = (
        f"A launch took the host {launch} µs in the sweep of layers: Python, dispatch and launch. One small forward, "
        f"timed before each measurement, took {low} to {high} µs per launch in four of five: the host's speed changes, "
        "so the model takes what the small forward says just before. "
        f"By the sweep's slope one more layer is {kernels} kernels: {host} µs of the host and {gpu} µs of the GPU."
    )
    below = folded("All figures", f"{as_table(shown)}\n\n{more}")
    return Markdown(f"{verdict(sentence).data}\n\n{below}")


def clocks_agree(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say whether the profiler and the host's clock time forwards alike, and what watching costs; of `accounts`."""
    shares = []
    for place, table in by_place(here, recorded).items():
        apart = table[table["phase"] == "forward"]["apart"].abs().max()
        shares.append(f"{units.percent(apart)} {place} ({'✔' if apart <= _CLOSE else '✘'})")
    shown = recorded[["model", "precision", "phase", "plain_ms", "clock_ms", "window_ms", "busy_ms", "idle_share"]]
    shown = shown.assign(watched=[units.times(1 + slowed) for slowed in recorded["slowed"]])
    names = {"watched": "under the profiler over alone"}
    names |= {"plain_ms": "clock alone, ms", "clock_ms": "clock under the profiler, ms", "window_ms": "profiler, ms"}
    names |= {"busy_ms": "GPU busy, ms", "idle_share": "share without a kernel"}
    most = recorded.loc[recorded["slowed"].idxmax()]
    sentence = (
        "On the same forwards the loop's clock and the profiler differ by at most "
        f"{listed(shares)}. Watched, the recorded {NAMES[most['phase']]} took up to {units.times(1 + most['slowed'])} "
        "as long."
    )
    return verdict(sentence, shown.rename(columns=names), summary="The recorded run")


def five_answers(here: Run, recorded: Run) -> Markdown:
    """Answer the profiler's questions in a table, this run beside the recorded one; the kernels folded below."""
    answers = {
        "How long has the GPU no kernel, in a forward of `small`?": _idle,
        "Which kernel takes most of a forward of `2.7b`, float32?": _top_kernel,
        "Is it the same one with backward?": _same_kernel,
        "What takes most of a forward besides products?": _besides,
        "Share of products, from a forward to an AdamW step": _falls,
        "Softmax beside both products of attention: does its time follow its bytes or its FLOP?": _softmax,
    }
    runs = {"here": here, "recorded": recorded}
    rows = [[question, *(answer(run) for run in runs.values())] for question, answer in answers.items()]
    kernels = tables.kernels(recorded).drop(columns="total_us")
    kernels = kernels.assign(phase=kernels["phase"].map(NAMES))
    table = as_table(pd.DataFrame(rows, columns=["question", *runs]))
    below = folded("The recorded kernels of 2.7b, float32", as_table(kernels))
    return Markdown(f"{table}\n\n{below}")


def _idle(run: Run) -> str:
    rows = tables.accounts(run).query("model == 'small' and phase == 'forward'")
    return _NO_GPU if run.plan.device == "cpu" else f"{units.percent(rows['idle_share'].max())} of its time, watched"


def _top_kernel(run: Run) -> str:
    top, largest = tables.kernels(run).iloc[0], run.plan.models[-1]
    smaller = "" if largest == SIZE_NAMES[-1] else f", of `{largest}`"
    return f"`{top['kernel'][:24]}`: {units.percent(top['share'])}, {top['calls']:.0f} calls{smaller}"


def _same_kernel(run: Run) -> str:
    tops = tables.kernels(run).groupby("phase", sort=False)[["kernel", "family"]].first()
    name, family = tops.iloc[-1]
    return "yes" if len({*tops["kernel"]}) == 1 else f"no: `{name[:24]}` ({family})"


def _besides(run: Run) -> str:
    rows = tables.families(run)
    rows = rows[(rows["phase"] == "forward") & (rows["family"] != "matmul") & (rows["model"] == rows["model"].iloc[-1])]
    top = rows[rows["precision"] == rows["precision"].iloc[-1]].sort_values("share").iloc[-1]
    return f"{top['family']}: {units.percent(top['share'])} (`{top['model']}`, {PRECISION_NAMES[top['precision']]})"


def _falls(run: Run) -> str:
    rows = tables.families(run).query("family == 'matmul'")
    wide = rows.pivot_table(index=["model", "precision"], columns="phase", values="share", sort=False)
    return listed(
        f"{units.percent(row['forward'])} → {units.percent(row['step'])} (`{model}`, {PRECISION_NAMES[precision]})"
        for (model, precision), row in wide.iterrows()
    )


def _softmax(run: Run) -> str:
    table = tables.attention_parts(run)
    off = {name: (table["us"] / table[name]).pipe(lambda x: x.where(x > 1, 1 / x)) for name in ("flop", "moved_bytes")}
    follows = "rather its bytes" if off["moved_bytes"].median() < off["flop"].median() else "rather its FLOP"
    us, flop, moved = (units.span(table[name], units.percent) for name in ("us", "flop", "moved_bytes"))
    return f"{follows}: it takes {us} of the products' time, moves {moved} of their bytes, does {flop} of their FLOP"


def bytes_or_flop(here: pd.DataFrame, recorded: pd.DataFrame) -> Markdown:
    """Say which share of the kernels' and of the step's time the memory bounds; takes `roofline`.

    Of this run where its roofs are known.
    """
    table = recorded if pd.isna(fact(here, "peak_tflops")) else here
    large = table[table["share"] >= _LARGE].sort_values("share", ascending=False)
    names = {"operator": "operator", "share": "share of the kernels' time", "flop_per_byte": "FLOP per byte"}
    names |= {"tflops": "TFLOP/s", "bound": "bound by", "of_roof": "times its roof"}
    shown = large[[*names]].rename(columns=names)
    memory = large[large["bound"] == "memory"]
    if (over := large[(large["bound"] == "compute") & (large["of_roof"] > 1)]["operator"].tolist()) != []:
        return verdict(f"**Faster than this GPU computes: {listed(over)}**. Do not believe it.", shown)
    if memory.empty:
        return verdict(f"{place_name(table).capitalize()} no large operator is bound by the memory.", shown)
    share, of_step = (units.percent(memory["share"].sum() * part) for part in (1, fact(table, "busy_share")))
    top, where = memory.iloc[0], place_name(table).capitalize()
    sentence = f"**{where} the memory bounds {share} of the kernels' time, {of_step} of the step's, timed alone**"
    reached = f"the largest part of it `{top['operator']}`, which reaches {units.percent(top['of_roof'])} of its roof"
    return verdict(f"{sentence}, {reached}.", shown)


def in_one_minute(here: Mapping[str, Run], recorded: Mapping[str, Run]) -> Markdown:
    """Return the lesson's rules, each with what it is worth here and in the recorded runs; takes runs by their plan."""
    return one_minute(_RULES, here=here, recorded=recorded)


def _warm(runs: Mapping[str, Run]) -> str:
    return f"the first forward takes {units.times(tables.iterations(runs['steps']).iloc[0]['times_later'])} as long"


def _median(runs: Mapping[str, Run]) -> str:
    rows = tables.warm_ups(runs["steps"]).query("phase == 'forward'")
    mean, median = (rows[f"{name}_ms"].iloc[0] / rows[f"{name}_ms"].iloc[-1] for name in ("mean", "median"))
    return f"without warm-ups the mean is {units.times(mean)} as large, the median {units.times(median)}"


def _launch_bound(runs: Mapping[str, Run]) -> str:
    gain = tables.modes(runs["steps"]).query("model == 'small' and phase == 'forward'")["launches"].iloc[0]
    sizes = tables.launches(runs["launches"]).query("axis == 'model'").set_index("model")
    again = sizes["eager_ms"].get("small", float("nan")) / sizes["gpu_ms"].get("small", float("nan"))
    if not gain > 0:
        return "no GPU, no CUDA graph"
    return f"`small` is {units.span([gain, again])} as fast in one launch, by the host's speed in two runs"


def _per_launch(runs: Mapping[str, Run]) -> str:
    table = tables.launches(runs["launches"])
    unit = (
        "µs per kernel: Python, dispatch, launch"
        if table["gpu_ms"].notna().any()
        else "µs per operator, its work included"
    )
    return f"{units.number(fact(table, 'launch_us'))} {unit}"


def _bytes(runs: Mapping[str, Run]) -> str | None:
    table = tables.roofline(runs["profiles"])
    memory = table[(table["bound"] == "memory") & (table["share"] >= _LARGE)]
    share = memory["share"].sum() * fact(table, "busy_share")
    return f"the memory bounds {units.percent(share)} of a step" if len(memory) else None


_RULES = {
    "Drop the first iterations": _warm,
    "Report the median": _median,
    "Count launches before FLOP": _launch_bound,
    "Know what a launch costs on your host": _per_launch,
    "Below the roof's edge, save bytes": _bytes,
}
