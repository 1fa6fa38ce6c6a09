"""What a confined process runs first: it takes its limits, loses what it may not see, and becomes the command.

Started by its path; imports the standard library alone. Standard input holds the request as JSON: `files` (name → text)
go into the folder `answer`; `command` is what runs then. With `root`, the process sees a file system of its own: the
paths that are to be shown, read-only, and an empty /tmp. It needs namespaces of its own for that (unshare(1)).
"""

import ctypes
import json
import os
import resource
import subprocess
import sys

ANSWER = "answer"  # the folder of the request's files, in the root or in the working folder
DEVICES = ("null", "zero", "random", "urandom")
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 38, 24, 36


def main() -> None:
    """Prepare this process as the request says, and run its command in its place."""
    request = json.load(sys.stdin)
    if root := request["root"]:
        _build(root, request["paths"])
        _write(f"{root}/{ANSWER}", request["files"])
        os.chroot(root)
        os.chdir("/tmp")
    else:
        _write(ANSWER, request["files"])
    for name, most in request["limits"].items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _give_up_rights(request["user"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execv(request["command"][0], request["command"])


def _write(folder: str, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)


def _build(root: str, paths: list[list[str]]) -> None:
    """Fill the root: each of `paths` is [path, "show"] or [path, "hide"], a folder before what it holds."""
    _mount("-t", "tmpfs", "-o", "mode=755,size=256m,nosuid,nodev", "labkit", root)
    for path, what in paths:
        inside = root + path
        if what == "hide":
            if os.path.isdir(inside):
                _mount("-t", "tmpfs", "-o", "mode=755,size=1m,nosuid,nodev", "labkit", inside)
        elif os.path.islink(path):
            os.makedirs(os.path.dirname(inside), exist_ok=True)
            os.symlink(os.readlink(path), inside)
        elif os.path.isdir(path):
            os.makedirs(inside, exist_ok=True)
            _mount("--rbind", path, inside)
            _make_read_only(inside)
    os.makedirs(f"{root}/dev")
    for name in DEVICES:
        open(f"{root}/dev/{name}", "w").close()
        _mount("--bind", f"/dev/{name}", f"{root}/dev/{name}")
    os.mkdir(f"{root}/proc")
    subprocess.run(["mount", "-t", "proc", "proc", f"{root}/proc"], stderr=subprocess.DEVNULL)  # containers forbid it
    os.mkdir(f"{root}/tmp")
    os.chmod(f"{root}/tmp", 0o1777)


def _make_read_only(folder: str) -> None:
    """Make every mount in a folder read-only; all its other options stay, which a user namespace may not change."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split() for line in file]
    for fields in lines:
        place = fields[4].encode().decode("unicode_escape")
        if place == folder or place.startswith(f"{folder}/"):
            options = ",".join("ro" if option == "rw" else option for option in fields[5].split(","))
            _mount("-o", f"remount,bind,{options}", place)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def _give_up_rights(user: int | None) -> None:
    """Drop every capability and the way to new ones; become `user`, where one is given."""
    prctl = ctypes.CDLL(None).prctl
    capability = 0
    while prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    if user is not None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what it starts stays below it, where the grader finds and ends it


if __name__ == "__main__":
    main()
