"""Ranks that record what is hard to keep, lose their files or fill the disk, and one that tells what it was given."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import psutil
import torch
import torch.distributed as dist
from failing_raises import die


def record_values(worker):
    worker.record(
        iteration=1,
        nan_ms=float("nan") if worker.rank else 0.5,
        inf_ms=float("inf"),
        note='two\nlines\r, "quotes", \u2028 and é 漢 🙂 \ud800',
        numpy_ms=np.float32(1.5),
        count=np.int64(7),
        flag=np.bool_(True),
        torch_ms=torch.tensor(2.5),
        half=torch.tensor(0.5, dtype=torch.bfloat16),
        several=[np.float64(1.0), torch.tensor(2)],
        nothing=None,
    )


def record(value):
    return lambda worker: worker.record(iteration=1, loss=value)


def record_half(worker):
    worker._rows.write('{"point": 1, "seconds": 0.')
    worker._rows.flush()
    die(signal.SIGKILL)(worker)


def record_to_a_full_disk(worker):
    os.dup2(os.open("/dev/full", os.O_WRONLY), worker._rows.fileno())
    worker.record(iteration=1)


def fill_the_disk(worker):
    with Path(worker.run.folder, "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(512))  # until there is no room


def lose(name: str):
    def fault(worker):
        getattr(worker.run, name)(worker.rank).unlink()
        dist.all_reduce(torch.zeros(1))

    return fault


def tell(worker):
    """Record what this process was given."""
    family = [psutil.Process(), *psutil.Process().parents()[:2]]  # the worker, the forkserver and the agent
    sockets = [socket.laddr.ip for process in family for socket in process.net_connections() if not socket.raddr]
    worker.barrier()
    worker.record(
        iteration=1,
        environment=dict(os.environ),
        cwd=os.getcwd(),
        executable=sys.executable,
        sockets=sockets,
        family=[process.exe() for process in family],
        threads=torch.get_num_threads(),
        hash=str(hash("labkit")),
        module=__import__(os.environ["A_MODULE"]).NAME if "A_MODULE" in os.environ else None,
    )


ALONE = {
    "a tensor": record(torch.zeros(3)),
    "a complex": record(np.complex64(1j)),
    "half a row": record_half,
    "a full device": record_to_a_full_disk,
    "fill the disk": fill_the_disk,
    "lose the rows": lose("rows_file"),
    "lose the events": lose("events_file"),
    "lose the log": lose("log_file"),
}
TOGETHER = {"values": record_values, "tell": tell}
