"""A process that launches, as a notebook's kernel does: it tells how that ended, and whether the next launch works."""

import json
import signal
import sys

from ends_plan import Ends

from labkit.engine import processes
from labkit.launching import launch

signal.signal(signal.SIGINT, signal.default_int_handler)  # as Jupyter's do: whoever started this may ignore it
told = {}
try:
    launch(Ends(faults=tuple(sys.argv[1:])))
except BaseException as error:
    told = {"error": type(error).__name__, "text": str(error), "interrupt": isinstance(error, KeyboardInterrupt)}
    told |= {"rows": len(error.run.rows), "left": len(processes.members(error.run)), "state": error.run.status["state"]}
print(json.dumps(told | {"next": launch(Ends()).status["state"]}))
