"""Lab 13, scaling: ResNet-18 on more GPUs; what becomes faster, what does not, and is it still the same training?"""

from lessons.scaling.charts.learning import accuracy_chart, published_chart
from lessons.scaling.charts.speed import laws_chart, parts_chart, scaling_chart, waterfall_chart, ways_chart
from lessons.scaling.exercise import attempts, check, diagnose, hint, show_suspects, solution, suspects
from lessons.scaling.explorer import explore, picture
from lessons.scaling.plan import TRAININGS, Accuracy, Communication, Epochs, Knobs, Messages, Trial
from lessons.scaling.story.learning import explain_accuracy
from lessons.scaling.story.speed import explain_exchange, explain_messages, explain_parts, explain_roof, explain_scaling
from lessons.scaling.tables.epochs import PARTS, epochs, ladder, laws, parts, scaling
from lessons.scaling.tables.exchange import beside_line, data_parallel, exchange, messages, orders, symptoms
from lessons.scaling.tables.learning import accuracy, differences
from lessons.scaling.tables.reading import published_shares, published_speedups
from lessons.scaling.targets import EXPECTED, scorecard, targets_of
from lessons.scaling.theory import BASE_RATE, bucket_count, model

_PLANS = ("epochs", "communication", "messages", "accuracy", "knobs", "trial")
RECORDED = {name: f"h200x2/scaling/{name}" for name in _PLANS}
