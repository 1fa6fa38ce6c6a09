"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.accounting.charts import batch_chart, devices_chart, fit_chart, machines_chart, parts_chart, splits_chart
from lessons.accounting.exercises import accounts, attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.accounting.exercises import why_one_unit
from lessons.accounting.explorer import explore
from lessons.accounting.story import (
    best_split,
    bound_enough,
    derived,
    enough_shards,
    in_one_minute,
    largest_kind,
    least_batch,
)
from lessons.accounting.story import needed_strategy, turned_knobs, what_a_label_means
from lessons.accounting.tables import bound, drivers, fit, knobs, labels, machines, measured, over_devices
from lessons.accounting.tables import over_tokens, parts, splits
from lessons.accounting.theory import XXL, Model

stand_in(globals())
