"""A process that launches, as a notebook's kernel does: it prints how that ended and which processes are left."""

import json
import sys

from faults_plan import Faults

from labkit.engine import processes
from labkit.launching import launch

try:
    launch(Faults(faults=tuple(sys.argv[1:])))
except BaseException as error:
    print(
        json.dumps(
            {
                "error": type(error).__name__,
                "interrupt": isinstance(error, KeyboardInterrupt),
                "text": str(error),
                "rows": len(error.run.rows),
                "state": error.run.status["state"],
                "left": [process.pid for process in processes.members(error.run)],
            }
        )
    )
