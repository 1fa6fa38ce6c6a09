"""Lab 06, benchmarking: where does a step's time go?"""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.benchmarking.charts.profiles import *  # noqa: F403
    from lessons.benchmarking.charts.steps import *  # noqa: F403
    from lessons.benchmarking.exercise import *  # noqa: F403
    from lessons.benchmarking.explorer import *  # noqa: F403
    from lessons.benchmarking.plan import *  # noqa: F403
    from lessons.benchmarking.story.firsts import *  # noqa: F403
    from lessons.benchmarking.story.profiles import *  # noqa: F403
    from lessons.benchmarking.story.steps import *  # noqa: F403
    from lessons.benchmarking.tables.launches import *  # noqa: F403
    from lessons.benchmarking.tables.profiles import *  # noqa: F403
    from lessons.benchmarking.tables.steps import *  # noqa: F403
    from lessons.benchmarking.tables.trials import *  # noqa: F403
    from lessons.benchmarking.targets import *  # noqa: F403
    from lessons.benchmarking.theory import *  # noqa: F403
    from lessons.benchmarking.theory.device import *  # noqa: F403

RECORDED = {name: f"h200/benchmarking/{name}" for name in ("steps", "firstcalls", "launches", "profiles", "trial")}

__getattr__, __dir__ = front_door(__name__)
