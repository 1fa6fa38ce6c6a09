"""The one sentence of an error tells the cause, on whichever line of the exception's message it stands."""

import resource
from types import SimpleNamespace

import pytest

from labkit import node
from labkit.engine import failure, system_limits
from labkit.engine.diagnosis import Diagnosis
from labkit.engine.log_text import reason_in_brief
from labkit.engine.run import Run
from labkit.engine.system_limits import with_limit

PREFIX = "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, "
SYSTEM = (
    f"{PREFIX}unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5\n"
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. \n"
)
USAGE = (
    f"{PREFIX}invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.19.3\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
)
SEGMENT = (
    "Error while creating shared memory segment /dev/shm/nccl-g0wGsu (size 9637888), "
    "error: No space left on device (28)"
)
DUPLICATE = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000"
LOADER = """Caught OSError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "loop.py", line 5, in _worker_loop
    raise ValueError("an earlier one")
ValueError: an earlier one

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "fetch.py", line 8, in fetch
    open(path)
OSError: [Errno 24] Too many open files: 'a.jpg'
"""


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"{SYSTEM}Last error:\n{SEGMENT}", f"NCCL version 2.20.5; Last error: {SEGMENT}"),
        (f"{USAGE}Last error:\n{DUPLICATE}", f"NCCL version 2.19.3; Last error: {DUPLICATE}"),
        (f"{USAGE}Last error: {DUPLICATE}\n", f"NCCL version 2.19.3; Last error: {DUPLICATE}"),
        (f"{SYSTEM}Last error:\n\nCuda failure 'out of memory'\n", "Last error: Cuda failure 'out of memory'"),
        (f"{SYSTEM}Last error:\n", "NCCL version 2.20.5"),
        (LOADER, "worker process 0; OSError: [Errno 24] Too many open files: 'a.jpg'"),
        (
            "\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\nKeyError: 1\n",
            "-- Process 0 terminated with the following error: KeyError: 1",
        ),
        ("at 10:4:\n    x = a + b\n        ^\nDtype mismatch", "at 10:4: Dtype mismatch"),
        (
            "backend='inductor' raised:\nRuntimeError: Failed to find C compiler. \n\nSet TORCHDYNAMO_VERBOSE=1",
            "backend='inductor' raised: RuntimeError: Failed to find C compiler.",
        ),
        ("one sentence.\nand more", "one sentence."),
        ("only a colon:", "only a colon:"),
        ("", ""),
        ("x" * 900 + "\nLast error:\n" + "y" * 900, "x" * 300 + "; Last error: " + "y" * 288),
    ],
)
def test_the_cause_is_in_the_sentence(message, told):
    assert reason_in_brief(message, 300).endswith(told)
    assert "\n" not in reason_in_brief(message, 300)


def test_frames_of_cpp_push_no_cause_out_of_the_message():
    frames = "".join(f"frame #{i}: c10::Error::Error(c10::SourceLocation) + 0x68\n" for i in range(200))
    error = RuntimeError(
        f"{SYSTEM}{'more of torch ' * 20}\nLast error:\n{SEGMENT}\n"
        f"Exception raised from create at NCCLUtils.hpp:275 (most recent call first):\n{frames}"
    )
    assert SEGMENT in failure.message(error)


def test_a_rank_that_raises_for_want_of_shared_memory_tells_segment_and_size(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path))
    from faults_plan import Faults

    run = Run.create(Faults(), node.here())
    report = failure.description(RuntimeError(f"{SYSTEM}Last error:\n{SEGMENT}")) | {
        "at": 1.0,
        "point": 0,
        "log_bytes": 0,
    }
    diagnosis = Diagnosis(run)
    diagnosis._events[1, "raised"].append(report | {"event": "raised"})
    said = diagnosis.first_cause(None, [], SimpleNamespace(alive=lambda: True)).sentence
    assert SEGMENT in said and "(/dev/shm, where processes share memory and locks, holds " in said
    assert "docker run --shm-size" in said and "at point 0" in said


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (SEGMENT, "docker run --shm-size=1g"),
        ("unable to write to file </torch_1_2>: No space left on device (28)", "docker run --shm-size"),
        ("It is possible that dataloader's workers are out of shared memory.", "docker run --shm-size"),
        ("This might be caused by insufficient shared memory (shm).", "docker run --shm-size"),
        ("Last error: Call to socket failed : Too many open files", "`ulimit -n` allows "),
        ("Last error: Call to ibv_create_cq failed with error Cannot allocate memory", "`ulimit -l` allows 64 KiB"),
        ("Cannot allocate memory", "Cannot allocate memory"),
        ("No space left on device", "No space left on device"),
    ],
)
def test_a_limit_of_the_system_is_known_by_the_words_of_nccl_and_torch(reason, told, monkeypatch):
    limits = {resource.RLIMIT_MEMLOCK: (2**16, 2**16)}
    real = resource.getrlimit
    monkeypatch.setattr(system_limits.resource, "getrlimit", lambda which: limits.get(which) or real(which))
    assert told in with_limit(reason) and with_limit(reason).startswith(reason)
    assert (told == reason) == (with_limit(reason) == reason)
