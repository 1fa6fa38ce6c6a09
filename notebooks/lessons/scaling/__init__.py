"""Lab 13, scaling: ResNet-18 on more GPUs; what becomes faster, what does not, and is it still the same training?"""
# ruff: noqa: F401, I001  (what a front door imports is for notebooks; isort would give each name a line)

from labkit.gaps import stand_in
from lessons.scaling.charts import accuracy_chart, laws_chart, parts_chart, published_chart, scaling_chart, ways_chart
from lessons.scaling.exercises import attempts, check, diagnose, hint, show_suspects, solution, suspects, why_the_batch
from lessons.scaling.exercises import yours
from lessons.scaling.plan import Accuracy, Communication, Epochs, Messages, Trial
from lessons.scaling.story import besides_gradients, counted, in_one_minute, parts_add_up, speedups, trained_alike
from lessons.scaling.story import ways_agree
from lessons.scaling.tables import accuracy, beside_line, data_parallel, exchange, laws, messages, orders, parts
from lessons.scaling.tables import published_speedups, scaling, symptoms

_PLANS = ("epochs", "communication", "messages", "accuracy")
RECORDED = {name: f"h100x2/scaling/{name}" for name in _PLANS}
RECORDED |= {name: f"h200x2/scaling/{name}" for name in ("trial", "suspects")}

stand_in(globals())
