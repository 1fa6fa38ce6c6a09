"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.accounting.charts.memory import *  # noqa: F403
    from lessons.accounting.charts.speed import *  # noqa: F403
    from lessons.accounting.exercise import *  # noqa: F403
    from lessons.accounting.explorer import *  # noqa: F403
    from lessons.accounting.story import *  # noqa: F403
    from lessons.accounting.tables.answers import *  # noqa: F403
    from lessons.accounting.tables.memory import *  # noqa: F403
    from lessons.accounting.tables.speed import *  # noqa: F403
    from lessons.accounting.targets import *  # noqa: F403
    from lessons.accounting.theory import *  # noqa: F403

__getattr__, __dir__ = front_door(__name__)
