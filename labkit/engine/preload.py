"""Imported once by the forkserver beside a kernel, so that its workers start with torch and their lab already loaded.

Nothing here may touch CUDA: a forked process cannot use a context of its parent. What cannot be imported is left to
the worker, which reports it.
"""

import contextlib
import importlib
import os

for _module in ("torch", "torch.distributed", *filter(None, os.environ.get("LABKIT_PRELOAD", "").split(","))):
    with contextlib.suppress(BaseException):
        importlib.import_module(_module)
