"""The walls of the house as functions: a file goes in, what it breaks comes out. test_house.py holds them to labkit."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

LESSONS = [
    "start",
    "topology",
    "broadcast",
    "pipeline",
    "ddp_fsdp",
    "sharding",
    "benchmarking",
    "precision_memory",
    "attention",
    "collectives",
    "ddp_from_scratch",
    "optimizer_sharding",
    "accounting",
    "scaling",
]
GPU_LIBRARIES = {"torch", "transformers", "triton", "deepspeed"}
FAR_SIDE = {"worker", "bugs", "engine.worker"}  # what runs in the workers' processes and in the agent's
DEBUGGER = ("labkit", "engine", "debug")  # launch(debug=True) brings the worker into the kernel, as was asked
MOST_LINES = 250
VAGUE_NAMES = {"utils", "helpers", "common", "misc"}
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# torch's collectives of objects: gloo's links know no password, and whoever writes to one would have code run.
OVER_LINKS = re.compile(r"(gather|scatter|broadcast|send|recv)_object(_list)?$")

# design.md, "Who may import whom"; everyone has the standard library and the other modules of the same role. {lab} is
# the file's own lab. Walls that building moved: a plan raises engine.errors; charts and stories name the types that
# they take and give (pandas, numpy, Markdown); attention's worker is written in Triton, broadcast's asks the CUDA
# runtime for copies (cuda.bindings comes with torch's CUDA build); node counts cores with psutil, and the agent ends
# with it what a worker has left. A lab whose subject is a mechanism (pipeline's schedules) models it in theory/ with
# the standard library alone: plans are checked by it, tables and the worker are set beside it. Any file may build on
# the same file of a lab whose lesson came first, or on its theory: a ledger is taught once and kept by many.
MAY_IMPORT = {
    "plan": {"labkit.engine.plan", "labkit.engine.errors", "labkit.node", "labkit.labs.{lab}.theory"},
    "theory": {"labkit.engine.errors"},
    "worker": {
        "torch",
        "transformers",
        "triton",
        "deepspeed",
        "cuda",
        "labkit.labs.{lab}.plan",
        "labkit.labs.{lab}.bugs",
        "labkit.labs.{lab}.theory",
        "labkit.engine.worker",
    },
    "tables": {"pandas", "numpy", "labkit.labs.{lab}.plan", "labkit.labs.{lab}.theory", "labkit.node.limits"},
    "charts": {"matplotlib", "seaborn", "labkit.ui", "pandas", "numpy"},
    "story": {"pandas", "labkit.ui", "labkit.node", "IPython"},
    "engine": {"pandas", "psutil", "tqdm", "labkit.node"},
    "engine.worker": {"torch", "psutil", "labkit.engine"},
    "node": {"pynvml", "pandas", "psutil"},
}
MAY_IMPORT["bugs"] = MAY_IMPORT["worker"]


def role(parts: tuple[str, ...]) -> str:
    """Gives the row of the table for a module, as the parts of its dotted name; "" for one without a row."""
    match parts:
        case ("labkit", "engine", "worker" | "agent" | "enter" | "loopback" | "preload" | "debug", *_):
            return "engine.worker"
        case ("labkit", "engine" | "node" as room, *_):
            return room
        case ("labkit", "labs", _, part, *_):
            return part if part in MAY_IMPORT else ""
    return ""


def dotted(path: Path, root: Path) -> tuple[str, ...]:
    """Gives a file's module name in parts."""
    parts = path.relative_to(root).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Gives line and full dotted name of all that a file imports: at its top, inside functions, by name in a call."""
    module = dotted(path, root)
    package = module if path.name == "__init__.py" else module[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            yield from ((node.lineno, _module(base, alias.name, root)) for alias in node.names)
        elif isinstance(node, ast.Call) and (name := _literal_import(node)):
            above = package[: len(package) - (len(name) - len(name.lstrip("."))) + 1] if name.startswith(".") else ()
            yield node.lineno, ".".join([*above, name.lstrip(".")])


def _module(base: str, name: str, root: Path) -> str:
    """`from base import name` imports the module base.name where there is one, else something in base."""
    inside = root.joinpath(*base.split("."), name)
    return f"{base}.{name}" if inside.is_dir() or inside.with_suffix(".py").exists() else base


def _literal_import(call: ast.Call) -> str:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name not in {"import_module", "__import__", "run_module"} or not call.args:
        return ""
    return call.args[0].value if isinstance(call.args[0], ast.Constant) else ""


def walls(path: Path, root: Path = ROOT) -> list[str]:
    """Gives what a file imports through a wall."""
    module = dotted(path, root)
    where = path.relative_to(root)
    return [f"{where}:{line} imports {name}" for line, name in imported(path, root) if not _may(module, name, root)]


def _may(module: tuple[str, ...], name: str, root: Path) -> bool:
    own, parts = role(module), tuple(name.split("."))
    lab = module[2] if module[:2] == ("labkit", "labs") and len(module) > 2 else ""
    if parts[0] in sys.stdlib_module_names or _same_role(module, parts):
        return True
    shared = {own, "theory"} if lab and own else set()
    if role(parts) in shared | ({"worker"} if own in FAR_SIDE else set()):
        return _came_first(parts[2], lab)
    if own == "engine" and parts[:3] == DEBUGGER:
        return True
    if own not in FAR_SIDE and _is_far(parts, root):
        return False
    if own not in MAY_IMPORT:
        return True
    return any(f"{name}.".startswith(f"{entry.format(lab=lab)}.") for entry in MAY_IMPORT[own])


def _same_role(module: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether both are in one room (engine, node) or in one part of one lab, as its plan or its worker."""
    depth = 4 if module[:2] == ("labkit", "labs") else 2
    return role(module) == role(other) != "" and module[:depth] == other[:depth]


def _is_far(parts: tuple[str, ...], root: Path) -> bool:
    """Whether the host must not import a module. The host reads the bugs' symptoms where they need no torch."""
    if role(parts) == "bugs":
        names = [name for _, name in imported(root.joinpath(*parts).with_suffix(".py"), root)]
        return any(_is_far(tuple(name.split(".")), root) for name in names)
    return parts[0] in GPU_LIBRARIES or role(parts) in FAR_SIDE


def _came_first(other: str, lab: str) -> bool:
    """Whether a lab's lesson is the other's own or comes later."""
    order = {name: at for at, name in enumerate(LESSONS)}
    return order.get(other, len(LESSONS)) <= order.get(lab, -1) or other == lab


def habits(path: Path) -> list[str]:
    """Gives a file's bad habits: a vague name, bulk, no docstring, a shell, a pickle, leftovers."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = ["a vague name"] if path.stem in VAGUE_NAMES else []
    if len(text.splitlines()) > MOST_LINES:
        found.append(f"more than {MOST_LINES} lines")
    if not ast.get_docstring(tree) and text.strip():
        found.append("no docstring")
    found += [f"leaves a {word}" for word in ("TODO", "FIXME", "XXX") if word in text]
    found += [f"{node.lineno}: {what}" for node in ast.walk(tree) if (what := _risk(node))]
    return [f"{path.name}: {what}" for what in found]


def _risk(node: ast.AST) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name.split(".")[0] for alias in node.names} | {(getattr(node, "module", "") or "").split(".")[0]}
        return "unpickles" if names & UNPICKLERS or any(map(OVER_LINKS.search, names)) else ""
    if not isinstance(node, ast.Call):
        return ""
    name = ast.unparse(node.func)
    shell = any(keyword.arg == "shell" and getattr(keyword.value, "value", 1) for keyword in node.keywords)
    if shell or name in {"os.system", "os.popen"}:
        return "starts a shell"
    if name == "torch.load" and not any(ast.unparse(keyword) == "weights_only=True" for keyword in node.keywords):
        return "unpickles"
    return "unpickles" if OVER_LINKS.search(name) or name.endswith("read_pickle") else ""
