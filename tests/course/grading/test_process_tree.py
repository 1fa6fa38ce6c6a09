"""What an answer starts, with real processes: together they take no more memory than one answer may, and all end."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from labkit.course.grading import confine, process_tree
from labkit.course.grading.confine import Limits
from labkit.course.grading.confined_judge import judge
from labkit.course.grading.grade import exercise_of
from labkit.course.verdict import RAISED, RIGHT

NAME = "accounting.devices_needed"
HOGS = """
import os, time
from math import ceil
{block}
def devices_needed(gib, gb):
    if not os.path.exists("/tmp/started"):
        open("/tmp/started", "w").close()
        for _ in range(6):
            if os.fork() == 0:
                {taken}
                time.sleep(60)
                os._exit(0)
        time.sleep(1.5)
    return ceil(gib * 2**30 / (gb * 10**9))
"""
OWN = HOGS.format(block="", taken='block = b"x" * 150 * 2**20')  # 6 × 150 MiB, each below the limit of 512 MiB
SHARED = HOGS.format(block='block = b"x" * 150 * 2**20', taken="pass")
pytestmark = pytest.mark.usefixtures("confined")


def test_an_answer_whose_processes_take_too_much_memory_together_is_ended():
    verdict = judge(exercise_of(NAME), NAME, OWN, "ada", limits=Limits(30, memory_mib=512))
    assert verdict.outcome == RAISED and "more than 512 MiB of memory together" in str(verdict), verdict


def test_memory_that_processes_share_counts_once():
    assert judge(exercise_of(NAME), NAME, SHARED, "ada", limits=Limits(30, memory_mib=512)).outcome == RIGHT


def test_what_took_the_memory_is_ended_with_all_that_it_started():
    mark = f"labkit-hog-{os.getpid()}"
    hog = f"[sys.executable, '-c', 'import time; block = b\"x\" * 200 * 2**20; time.sleep(60)', '{mark}']"
    body = f"import subprocess, sys, time\nfor _ in range(4): subprocess.Popen({hog}, start_new_session=True)\n"
    ended = confine.run({"script.py": f"{body}time.sleep(60)"}, "script.py", Limits(30, memory_mib=512))
    assert ended.took_more == "than 512 MiB of memory" and ended.status is None
    assert still_running(mark) == []


def test_an_endless_loop_is_ended_with_all_that_it_started():
    """Of what it started, one has a session of its own and a parent that has ended."""
    mark = f"labkit-endless-{os.getpid()}"
    started = f"[sys.executable, '-c', 'while True: pass', '{mark}']"
    body = f"import os, subprocess, sys\nsubprocess.Popen({started})\nif os.fork() == 0:\n"
    body += f"    subprocess.Popen({started}, start_new_session=True)\n    os._exit(0)\nos.wait()\n"
    body += "os.write(int(sys.argv[1]), b'started')\nwhile True: pass"
    ended = confine.run({"script.py": body}, "script.py", Limits(3))
    assert (ended.status, ended.results, ended.took_more) == (None, "started", ""), "by its time, not by its core's"
    assert still_running(mark, 30) == []


def test_a_daemon_does_not_outlive_its_answer():
    """Its answer has ended well before it, and it has a session of its own."""
    mark = f"labkit-daemon-{os.getpid()}"
    daemon = f"[sys.executable, '-c', 'import time; time.sleep(60)', '{mark}']"
    body = "import os, subprocess, sys\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
    body += f"        subprocess.Popen({daemon}, start_new_session=True)\n    os._exit(0)\nos.wait()\n"
    ended = confine.run({"script.py": f"{body}os.write(int(sys.argv[1]), b'done')"}, "script.py", Limits(10))
    assert (ended.results, ended.status) == ("done", 0)
    assert still_running(mark, 2) == []


BOMB = """
import os, time
while time.monotonic() < {until}:
    try: os.fork()
    except OSError: time.sleep(0.01)
"""
MANY = """
import os, time
for _ in range(1000):
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""
FORKS = """
import os, sys, time
for _ in range(40):
    if os.fork() == 0: os._exit(0)
    os.wait()
    time.sleep(0.05)
os.write(int(sys.argv[1]), b"forty")
"""


@pytest.mark.slow
def test_a_fork_bomb_is_its_answers_own_and_is_ended():
    """Beside it, another answer starts processes."""
    assert confine.side_by_side()
    bomb = {"script.py": BOMB.format(until=time.monotonic() + 30)}
    with ThreadPoolExecutor() as pool:
        bombs = [pool.submit(confine.run, bomb, "script.py", Limits(6)) for _ in range(2)]
        time.sleep(1)
        others = [pool.submit(confine.run, {"script.py": FORKS}, "script.py", Limits(30)) for _ in range(2)]
    assert [other.result().results for other in others] == ["forty"] * 2
    assert all(bomb.result().status is None for bomb in bombs)


@pytest.mark.slow
def test_an_answer_cannot_start_too_many_processes():
    ended = confine.run({"many.py": MANY}, "many.py", Limits(20))
    assert ended.took_more == f"than {confine.MOST_PROCESSES} processes" or "BlockingIOError" in ended.printed, ended
    assert not [one for one in psutil.process_iter(["cmdline"]) if "/many.py" in str(one.info["cmdline"])]


@pytest.mark.slow
def test_processes_that_end_while_they_are_counted():
    """Of a process whose children end all the time, only living ones are counted, and none that is gone is an error."""
    body = "import os\nwhile True:\n    if os.fork() == 0: os._exit(0)\n    os.wait()"
    parent = subprocess.Popen([sys.executable, "-c", body])
    try:
        counts = {len(process_tree.tree(parent.pid)) for _ in range(20000)}
    finally:
        parent.kill()
        parent.wait()
    assert counts <= {1, 2}


def still_running(mark: str, seconds: float = 5) -> list[int]:
    """Return who still has a mark in its command; the kernel ends a process table a moment after its first process."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = [
            one.pid
            for one in psutil.process_iter(["cmdline", "status"])
            if mark in (one.info["cmdline"] or []) and one.info["status"] != psutil.STATUS_ZOMBIE
        ]
        if not found:
            return []
        time.sleep(0.1)
    return found
