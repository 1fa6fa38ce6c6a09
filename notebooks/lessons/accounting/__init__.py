"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""

from lessons.accounting.charts.memory import devices_chart, fit_chart, parts_chart
from lessons.accounting.charts.speed import batch_chart, machines_chart, measured_chart, splits_chart
from lessons.accounting.exercise import accounts, attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.accounting.explorer import explore
from lessons.accounting.story import explain_batch, explain_fit, explain_knobs, explain_measured, explain_memory
from lessons.accounting.tables.answers import answers, derivation
from lessons.accounting.tables.memory import drivers, fit, labels, over_devices, parts
from lessons.accounting.tables.speed import bounds, knobs, machines, measured, over_tokens, splits
from lessons.accounting.targets import computed_scorecard, scorecard
from lessons.accounting.theory import XXL, Model
