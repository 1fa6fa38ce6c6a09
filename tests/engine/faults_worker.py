"""What the ranks of the faulty lab do. Its line numbers are looked up by text, not typed into the tests."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import faults_plan  # noqa: F401  (a plan is read back by its class, which must be known here)
import psutil
import torch
import torch.distributed as dist

OF_THE_DRIVER = ("CUDA error: out of memory\nSearch for it in the manual", "Triton Error [CUDA]: out of memory")
SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


def measure(worker, point) -> None:
    worker.record(iteration=0, pid=os.getpid(), seconds=0.5 + worker.rank)
    worker.barrier()  # when one rank dies, the launcher ends the others: each has its row by then
    if point.fault == "none":
        worker.barrier()
    elif point.fault == "oom":
        raise torch.OutOfMemoryError("no memory on any rank")
    elif point.fault in OF_THE_DRIVER:  # on every rank: where they differ, there are fresh workers anyway
        raise RuntimeError(point.fault)
    elif point.fault == "a lesson's worker":
        importlib.import_module("lessons.broadcast.worker")
        only_the_kernels = ("lessons.broadcast.charts", "labkit.course", "labkit.launching", "pandas", "IPython")
        worker.record(iteration=1, loaded=[name for name in only_the_kernels if name in sys.modules])
    elif point.fault == "grandchild":
        subprocess.Popen(SLEEPER, start_new_session=True)
    elif point.fault == "parents":
        worker.record(iteration=1, parents=" ".join(str(above.pid) for above in psutil.Process().parents()[:3]))
    elif point.fault == "a loader":
        loader = torch.utils.data.DataLoader(local_images(), num_workers=1)
        worker.record(iteration=1, loaded=[batch.item() for batch in loader])
    elif point.fault == "closed":  # what a rank raises whose connection ends
        raise ConnectionResetError("Connection closed by peer")
    elif point.fault == "pause":
        time.sleep(1.2)
    elif point.fault == "sleep":
        time.sleep(600)
    elif point.fault == "visible":
        worker.record(iteration=1, visible=os.environ.get("CUDA_VISIBLE_DEVICES"), at=time.time())
        time.sleep(0.3)
        worker.record(iteration=2, visible=os.environ.get("CUDA_VISIBLE_DEVICES"), at=time.time())
    elif worker.rank != worker.plan.rank:
        dist.all_reduce(torch.zeros(1))
    else:
        fail(worker, point.fault)


def local_images() -> torch.utils.data.Dataset:
    """Return a data set whose class no other process can import."""

    class Local(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index**2

    return Local()


def fail(worker, fault: str) -> None:
    """What the one rank does that the others wait for."""
    if fault == "oom alone":
        raise torch.OutOfMemoryError("no memory on this rank")
    if fault == "raise":
        raise ValueError("this rank raises on purpose")
    if fault == "kill":
        worker._rows.write('{"point": 1, "seconds": 0.')  # killed in the middle of a row
        worker._rows.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit 0":
        os._exit(0)
    if fault == "exit 3":
        os._exit(3)
    if fault == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), worker._rows.fileno())
        worker.record(iteration=1)
    if fault == "full shared memory":
        with contextlib.suppress(OSError), open("/dev/shm/full", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                continue
        multiprocessing.Lock()
    if fault == "hang":
        time.sleep(600)  # it never joins the others
