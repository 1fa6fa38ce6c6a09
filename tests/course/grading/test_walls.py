"""Answers stay inside wherever checkout and Python lie, whoever grades; where nothing confines them, none runs.

Each trial is a grader in a process of its own, with a Python, a virtual environment and a checkout of its own.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from labkit.repository import REPOSITORY

USER = 54321
STDLIB = Path("/usr/lib") / f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = Path("/usr/bin") / STDLIB.name
# All of them: an environment without packages of its own sees another's.
PACKAGES = os.pathsep.join(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
# A Python that needs no library beside it can be copied anywhere, as those of conda and uv can.
COPIED = PYTHON.exists() and not any("libpython" in line for line in os.popen(f"ldd {PYTHON}").read().splitlines())
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can grade as two users"),
    pytest.mark.skipif(not COPIED, reason=f"{PYTHON} is not there, or cannot be copied"),
    pytest.mark.timeout(120),
]

GRADER = """
import json, sys
from labkit.course.grading import confine
try:
    ended = confine.run({"answer.py": open(sys.argv[1]).read()}, "answer.py", confine.Limits(20))
    print(json.dumps({"reached": json.loads(ended.results)}))
except confine.Unconfined as error:
    print(json.dumps({"refused": str(error)}))
"""
ANSWER = """
import json, os, socket, sys
tried = {
    "read the solutions": lambda: open(%(checkout)r + "/notebooks/lessons/accounting/solutions.py").read(),
    "read another's file": lambda: open(%(secret)r).read(),
    "read an open file": lambda: open(%(home)r + "/open").read(),
    "write into the checkout": lambda: open(%(checkout)r + "/labkit/__init__.py", "a").close(),
    "change a package": lambda: open(sys.prefix + "/lib/%(python)s/site-packages/x.pth", "w").close(),
    "change Python": lambda: open(os.__file__, "a").close(),
    "reach the network": lambda: socket.create_connection(("127.0.0.1", %(port)d), 2).close(),
}
reached = []
for name, attempt in tried.items():
    try:
        attempt()
        reached.append(name)
    except OSError:
        pass
os.write(int(sys.argv[1]), json.dumps(reached).encode())
"""


def place_of(where: str, user: int) -> Path:
    """Return a new folder that the user owns: below the temporary folder or root's home, by its name or by a link."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-walls-", dir=Path.home() if where == "root's home" else None))
    folder.chmod(0o755)
    place = folder / {"not ASCII": "läb \\ ö", "links": "behind"}.get(where, "lab")
    place.mkdir()
    if where == "links":
        (folder / "link").symlink_to(place)
        place = folder / "link"
    os.chown(place, user, user)
    return place


def environment_at(place: Path, path: str) -> dict[str, str]:
    (place / "open").touch(mode=0o644)
    (place / "tmp").mkdir(exist_ok=True)
    (place / "tmp").chmod(0o1777)
    return {"PATH": path, "HOME": str(place), "TMPDIR": str(place / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}


def build(place: Path, user: int) -> Path:
    """Put a Python, a checkout and its virtual environment into a folder; return the environment's Python."""

    def linked(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    left_out = shutil.ignore_patterns("__pycache__", "test", "idlelib", "dist-packages")
    shutil.copytree(STDLIB, place / "python-3" / "lib" / STDLIB.name, copy_function=linked, ignore=left_out)
    (place / "python-3" / "bin").mkdir()
    linked(str(PYTHON), str(place / "python-3" / "bin" / "python3"))
    (place / "python").symlink_to("python-3")  # as uv has a link for each version
    checkout = place / "checkout"
    for name in ("labkit", "notebooks/lessons"):
        shutil.copytree(REPOSITORY / name, checkout / name, ignore=left_out)
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, user, user)
    command = [place / "python" / "bin" / "python3", "-m", "venv", "--without-pip", checkout / ".venv"]
    own = environment_at(place, "/usr/bin:/bin")
    subprocess.run(command, check=True, user=user, group=user, extra_groups=[], env=own, cwd=place)
    return checkout / ".venv" / "bin" / "python"


TRIALS = [  # where, who grades, namespaces are to be had
    pytest.param("temporary folder", 0, True, marks=pytest.mark.quick),
    ("root's home", 0, True),
    ("not ASCII", 0, True),
    ("links", 0, True),
    ("temporary folder", 0, False),
    ("temporary folder", USER, True),
    ("not ASCII", USER, True),
    ("links", USER, True),
    ("temporary folder", USER, False),
]


@pytest.mark.parametrize(("where", "user", "namespaces"), TRIALS)
def test_an_answer_stays_inside_or_is_not_run(where, user, namespaces):
    place = place_of(where, user)
    try:
        python = build(place, user)
        own = environment_at(place, "/usr/bin:/bin:/usr/sbin" if namespaces else str(place / "python"))
        secret = place / "secret"
        secret.write_text("of the grader")
        secret.chmod(0o600)
        os.chown(secret, user, user)
        with socket.create_server(("127.0.0.1", 0)) as server:
            names = {"checkout": str(place / "checkout"), "secret": str(secret), "home": str(place)}
            names |= {"python": STDLIB.name, "port": server.getsockname()[1]}
            (place / "answer.py").write_text(ANSWER % names)
            done = subprocess.run(
                [python, "-c", GRADER, place / "answer.py"],
                user=user, group=user, extra_groups=[], cwd=place, capture_output=True, text=True,
                env=own | {"PYTHONPATH": f"{place / 'checkout'}:{PACKAGES}"},
            )  # fmt: skip
        if user and "Permission" in done.stderr:
            pytest.skip(f"the packages of this Python are closed to others: {PACKAGES}")
        assert done.returncode == 0, done.stderr
        given = json.loads(done.stdout)
        left = [*place.rglob("labkit-probe-*"), *place.rglob("x.pth")]
    finally:
        shutil.rmtree(place.parent)
    assert left == []
    if not namespaces:
        assert "no answer was run" in given["refused"] and "unshare" in given["refused"], given
        return
    if "refused" in given:
        own = ["--user", "--map-root-user"] if user else []
        refused = subprocess.run(
            ["unshare", *own, "--mount", "true"], user=user, group=user, extra_groups=[]
        ).returncode
        assert refused, given
        pytest.skip("the kernel refuses namespaces here")
    assert given == {"reached": []}
