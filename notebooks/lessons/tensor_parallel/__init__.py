"""Lab 16, tensor_parallel: layers of which each GPU has a part, and what they say to each other."""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from labkit.engine.recordings import Recordings
from lessons.tensor_parallel.charts import shares_chart, split_chart, steps_chart, widths_chart
from lessons.tensor_parallel.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.tensor_parallel.exercises import why_not_more_tokens, yours
from lessons.tensor_parallel.explorer import explore
from lessons.tensor_parallel.plan import Equality, Steps, Trial, Widths
from lessons.tensor_parallel.story import all_right, as_formula, from_which_width, in_one_minute, which_is_fastest
from lessons.tensor_parallel.tables import cases, ledgers, shares, steps, symptoms, widths

RECORDED = Recordings("tensor_parallel", 2, dict.fromkeys(("equality", "steps", "widths", "suspects"), ("h200x2",)))

stand_in(globals())
