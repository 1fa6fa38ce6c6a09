"""Lab 13, scaling: ResNet-18 on more GPUs; what becomes faster, what does not, and is it still the same training?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.scaling.charts.learning import *  # noqa: F403
    from lessons.scaling.charts.speed import *  # noqa: F403
    from lessons.scaling.exercise import *  # noqa: F403
    from lessons.scaling.explorer import *  # noqa: F403
    from lessons.scaling.plan import *  # noqa: F403
    from lessons.scaling.story.learning import *  # noqa: F403
    from lessons.scaling.story.speed import *  # noqa: F403
    from lessons.scaling.tables.epochs import *  # noqa: F403
    from lessons.scaling.tables.exchange import *  # noqa: F403
    from lessons.scaling.tables.learning import *  # noqa: F403
    from lessons.scaling.tables.reading import *  # noqa: F403
    from lessons.scaling.targets import *  # noqa: F403
    from lessons.scaling.theory import *  # noqa: F403

_PLANS = ("epochs", "communication", "messages", "accuracy", "knobs", "trial")
RECORDED = {name: f"h200x2/scaling/{name}" for name in _PLANS}

__getattr__, __dir__ = front_door(__name__)
