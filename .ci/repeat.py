"""Run a command that runs pytest; where tests fail, run their files once more, alone. What fails twice fails.

    python3 .ci/repeat.py make test-all

What fails once is printed as `flaky: NAME`, at the end: a defect whose cause is to be found, which does not hide the
change that is being tested. A file runs whole, since a notebook's cell needs the cells before it.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST_FILES = 12  # where more fail, it is not by chance
AGAIN = (".venv/bin/python", "-m", "pytest", "-n", "0", "--nbval", "--nbval-current-env")


def main(command: list[str]) -> int:
    """Return 0 where no test fails twice. A run that tests alone have not failed keeps its status."""
    LAST_FAILED.unlink(missing_ok=True)  # of an earlier run
    status, tests_failed = followed(command)
    if status == 0 or not tests_failed or not (first := last_failed()):
        return status
    files = sorted({test.partition("::")[0] for test in first})
    if len(files) > MOST_FILES:
        print(f"tests of {len(files)} files failed: none is repeated", flush=True)
        return status
    print(f"\nonce more, alone: {' '.join(files)}", flush=True)
    again = subprocess.run([*AGAIN, *files]).returncode
    if again not in (0, 1):  # pytest itself failed
        return again
    second = last_failed()
    for test in sorted(first & second):
        print(f"failed twice: {test}")
    for test in sorted(first ^ second):
        print(f"flaky: {test}")
    return 1 if first & second else 0


def followed(command: list[str]) -> tuple[int, bool]:
    """Return a command's status, and whether pytest's was 1: tests failed, and all were run. Pass on what it prints."""
    pytest_status = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            if told := re.match(rb"make(?:\[\d+\])?: \*\*\* .* Error (\d+)$", line):
                pytest_status = int(told[1])
    return process.returncode, pytest_status == 1


def last_failed() -> set[str]:
    """Return the tests that failed when they were last run, as pytest remembers them."""
    return set(json.loads(LAST_FAILED.read_text(encoding="utf-8"))) if LAST_FAILED.exists() else set()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
