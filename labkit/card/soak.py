"""`make card ARGS="--soak 15"`: all GPUs at full load for minutes; rate, clock and temperature against time."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from labkit.card.trends import inline_svg
from labkit.card.verdicts import HEAT, percent_text
from labkit.charts import canvas
from labkit.engine.run import Run
from labkit.engine.run_folder import runs_folder
from labkit.node.faults import FAULT, Finding
from labkit.report.record import Record
from labkit.story.units import number
from labkit.story.words import listed

if TYPE_CHECKING:
    import pandas as pd

PANELS = {"tflops": "TFLOP/s", "sm_clock_mhz": "SM clock, MHz", "temperature_c": "temperature, °C"}


def soak_of(record: Record) -> Run | None:
    """Return the run that loaded the GPUs; None without one, and where its folder was removed since."""
    run = Run(runs_folder() / record.card_runs.soak)
    return run if record.card_runs.soak and run.plan_file.exists() else None


@dataclass(frozen=True)
class Soaked:
    """What one GPU did: TFLOP/s in the first and in the last minute, its highest temperature, what lowered its clock.

    by_heat, by_power: the share of the looks in which heat, or the power cap, lowered the clock. wrong_words: of 8
    bytes, that the memory did not hold; of pattern_gib that were written before and read back afterwards.
    """

    name: str
    first: float
    last: float
    temperature_c: float
    by_heat: float
    by_power: float
    pattern_gib: float
    wrong_words: int

    @property
    def slower_percent(self) -> float:
        return 100 * (1 - self.last / self.first)

    @property
    def pace(self) -> str:
        """How fast the last minute was beside the first: "1.2 % slower", or "as fast" where both show one figure."""
        if number(self.first) == number(self.last):
            return "as fast"
        return f"{percent_text(abs(self.slower_percent))} % {'slower' if self.slower_percent > 0 else 'faster'}"


def soaked(run: Run) -> list[Soaked]:
    """Return what each GPU of the run did."""
    looks, each = _looks(run), []
    for rank, rows in run.rows.groupby("rank"):
        timed, pattern = rows[rows["tflops"].notna()], rows[rows["wrong_words"].notna()].iloc[-1]
        gpu = run.gpu(int(str(rank)))
        of_gpu = looks[looks["gpu"] == gpu] if gpu is not None else looks.iloc[:0]
        reasons = of_gpu["throttle_reasons"].dropna()
        minutes = timed.groupby("minute")["tflops"].median()
        heat, power = (float(reasons.map(lambda names, why=why: why in names).mean()) for why in (HEAT, "power cap"))
        name = f"GPU {gpu}" if gpu is not None else f"process {rank}"
        rates = (float(minutes.iloc[0]), float(minutes.iloc[-1]))
        memory = (float(pattern["pattern_gib"]), int(pattern["wrong_words"]))
        each.append(Soaked(name, *rates, float(of_gpu["temperature_c"].max()), heat, power, *memory))
    return each


def _looks(run: Run) -> pd.DataFrame:
    """Return the looks at the GPUs while they multiplied, by minutes since the first product."""
    conditions = run.conditions()
    points = conditions.points
    begun_s, ended_s = (points[0]["began_s"], points[-1]["ended_s"]) if points else (0.0, 0.0)
    table = conditions.table()
    table = table[table["gpu"].notna() & table["at_s"].between(begun_s, ended_s)]
    return table.assign(minutes=(table["at_s"] - begun_s) / 60)


def findings_of(run: Run) -> list[Finding]:
    """Return what is a fault for certain: memory that lost what was written, and heat that lowered a clock."""
    found = []
    for each in soaked(run):
        if each.wrong_words:
            what = f"lost {each.wrong_words} words in {run.plan.minutes} minutes of full load"
            found.append(Finding("memory", each.name, what, FAULT))
        if each.by_heat > 0:
            pace = each.pace if each.slower_percent > 0 else "as fast"
            cost = f"{pace} in the last minute {'as' if pace == 'as fast' else 'than'} in the first"
            what = (
                f"lowered the clock for {100 * each.by_heat:.0f} % of {run.plan.minutes} minutes of full load: {cost}"
            )
            found.append(Finding("heat", each.name, what, FAULT))
    return found


def sentences(run: Run) -> list[str]:
    """Return what the load showed, in sentences."""
    each = soaked(run)
    worst = max(each, key=lambda one: one.slower_percent)
    faults = [f"{fault}." for fault in findings_of(run)]
    change = f"{number(worst.first)} TFLOP/s in the first minute and {number(worst.last)} in the last"
    rate = f"{worst.name} changed most: {change} ({worst.pace})."
    hottest = max(each, key=lambda one: one.temperature_c)
    warm = f"{hottest.name} was the warmest, {hottest.temperature_c:.0f} °C." if hottest.temperature_c > 0 else ""
    capped = [one for one in each if one.by_power > 0]
    cap = f"The power cap lowered the clock of {listed([one.name for one in capped])} for up to "
    cap += f"{100 * max((one.by_power for one in capped), default=0):.0f} % of the time, as it does at full load."
    memory = f"{number(min(one.pattern_gib for one in each))} GiB a GPU held what was written before the load."
    kept = not any(one.wrong_words for one in each)
    return [*faults, rate, *filter(None, (warm, cap if capped else "", memory if kept else ""))]


def soak_html(run: Run) -> str:
    """Return the section of the card's page: sentences and chart."""
    said = sentences(run)
    drawing = inline_svg(soak_chart(run), " ".join(said))
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in said)
    return f'<h3>Full load for {run.plan.minutes} minutes</h3><ul>{items}</ul><figure class="soak">{drawing}</figure>'


def soak_chart(run: Run) -> Any:
    """Draw rate, clock and temperature of every GPU against time."""
    rows, looks = run.rows, _looks(run)
    rates = rows[rows["tflops"].notna()]
    rates = rates.assign(minutes=(rates["at_s"] - rates["at_s"].min()) / 60)
    shown = [name for name in PANELS if name == "tflops" or looks[name].notna().any()]
    figure, grid = canvas.canvas(1, len(shown), height=0.7 + 1.3 * len(shown), sharex=True, squeeze=False)
    for ax, name in zip(grid[:, 0], shown, strict=True):
        table, by = (rates, "rank") if name == "tflops" else (looks, "gpu")
        for (key, of_one), color in zip(table.groupby(by), 8 * canvas.SERIES, strict=False):
            label = f"GPU {run.gpu(int(key)) if by == 'rank' else int(key)}" if run.node.gpus else f"process {int(key)}"
            ax.plot(of_one["minutes"], of_one[name], color=color, lw=1.2, label=label)
        ax.set(ylabel=PANELS[name], ylim=(0, 1.12 * table[name].max()))
    grid[-1, 0].set(xlabel="minutes of full load", xlim=(0, None))
    canvas.shared_legend(figure, [grid[0, 0]], columns=8)
    return canvas.finish(figure, run.source)
