"""The walls of the house as functions: a file goes in, what it breaks comes out. test_house.py holds them to labkit."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx

ROOT = Path(__file__).parents[1]

GPU_LIBRARIES = {"torch", "transformers", "triton", "deepspeed"}
FAR_SIDE = {
    "confined",
    "worker",
    "bugs",
    "engine.worker",
    "cluster.worker",
}  # what runs in the workers' processes and in the agent's
DEBUGGER = ("labkit", "engine", "debug")  # launch(debug=True) brings the worker into the kernel, as was asked
MOST_LINES = 400  # of one idea; two ideas are two files, however short
TYPED = {"run", "worker", "point"}  # a reader must know of each what it is, whoever hands it on
PROVENANCE = "provenance.py"  # alone knows where a table keeps what it was made from
VAGUE_NAMES = {"utils", "helpers", "common", "misc"}
UNPICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
# torch's collectives of objects: gloo's links know no password, and whoever writes to one would have code run.
OVER_LINKS = re.compile(r"(gather|scatter|broadcast|send|recv)_object(_list)?$")

# Who may import whom, besides the standard library, the modules of the same role in the same place, and what everyone
# may use. {lab} is the file's own lab: no lab imports another. What two labs need lives in the shared room of its role
# (labkit.theory, labkit.worker, labkit.tables, labkit.charts, labkit.story), and those rooms obey the same row.
# Reasons for what is not obvious: charts and stories name the types that they take and return (pandas, numpy,
# Markdown); a label on a chart and a word in a sentence come from one place (labkit.story);
# made images are digits in the typefaces that matplotlib ships (lab 13's glyphs); an explorer computes theory
# while a slider moves; attention's worker is written in Triton, broadcast's asks the CUDA runtime for copies
# (cuda.bindings comes with torch's CUDA build); node counts cores with psutil, and the agent ends with it what a worker
# has left; a worker may call a student's function with arguments that no plan can hold
# (labkit.engine.called_function), and shape the link between two namespaces (labkit.node.network names it).
EVERYONE = {"labkit.provenance", "labkit.repository", "labkit.stored"}
MAY_IMPORT = {
    "plan": {
        "labkit.engine.plan",
        "labkit.engine.launch_settings",
        "labkit.engine.errors",
        "labkit.node",
        "labkit.plans",
        "labkit.theory",
        "lessons.{lab}.theory",
    },
    "theory": {"labkit.engine.errors", "labkit.node", "labkit.theory"},
    "worker": {
        "torch",
        "transformers",
        "triton",
        "deepspeed",
        "cuda",
        "psutil",
        "matplotlib",
        "labkit.engine.worker",
        "labkit.engine.call",
        "labkit.engine.called_function",
        "labkit.engine.node_clock",
        "labkit.node.network",
        "labkit.plans",
        "labkit.worker",
        "labkit.theory",
        "lessons.{lab}.plan",
        "lessons.{lab}.bugs",
        "lessons.{lab}.theory",
    },
    "tables": {
        "pandas",
        "numpy",
        "labkit.engine.recordings",
        "labkit.engine.run",
        "labkit.node.comparability",
        "labkit.node.limits",
        "labkit.plans",
        "labkit.tables",
        "labkit.theory",
        "lessons.{lab}.plan",
        "lessons.{lab}.theory",
    },
    "charts": {
        "matplotlib",
        "matplotlib_inline",
        "IPython",
        "ipywidgets",
        "seaborn",
        "networkx",
        "pandas",
        "numpy",
        "labkit.charts",
        "labkit.node.conditions",
        "labkit.story",
        "labkit.theory",
        "lessons.{lab}.theory",
    },
    "story": {
        "pandas",
        "IPython",
        "labkit.engine.recordings",
        "labkit.engine.run",
        "labkit.gaps",
        "labkit.node",
        "labkit.story",
        "labkit.theory",
        "lessons.{lab}.tables",
        "lessons.{lab}.theory",
    },
    "engine": {"pandas", "psutil", "tqdm", "labkit.node"},
    "cluster": {"psutil", "labkit.engine", "labkit.node"},
    "engine.worker": {"torch", "psutil", "labkit.engine", "labkit.node", "labkit.worker.probes"},
    "cluster.worker": {"torch", "psutil", "labkit.cluster", "labkit.engine", "labkit.node"},
    "node": {"pynvml", "pandas", "psutil"},
    "confined": {"torch", "labkit.course.syntax", "labkit.engine.called_function"},
}
MAY_IMPORT["bugs"] = MAY_IMPORT["worker"] | {"lessons.{lab}.worker"}
MAY_IMPORT["measures"] = MAY_IMPORT["tables"] | {"lessons.{lab}.tables"}
MAY_IMPORT["claims"] = MAY_IMPORT["measures"] | {"labkit.node.topology"}  # a report prints its node's wiring as text
MAY_IMPORT["explorer"] = MAY_IMPORT["charts"] | {
    "ipywidgets",
    "labkit.plans",
    "lessons.{lab}.plan",
    "lessons.{lab}.tables",
    "lessons.{lab}.charts",
}
MAY_IMPORT["solutions"] = {"labkit.theory"}
SHARED_ROOMS = ("theory", "worker", "tables", "charts", "story")


def role(parts: tuple[str, ...]) -> str:
    """Return the row of the table for a module, as the parts of its dotted name; "" for one without a row."""
    match parts:
        case (
            "labkit",
            "engine",
            "worker" | "elastic" | "enter" | "failure" | "rendezvous" | "node_clock" | "preload" | "loaded" | "debug",
            *_,
        ):
            return "engine.worker"
        case ("labkit", "cluster", "station", *_):
            return "cluster.worker"
        case ("labkit", "cluster", *_):
            return "cluster"
        case ("labkit", "engine" | "node" as room, *_):
            return room
        case ("labkit", "course", "grading", "confined_attempt"):
            return "confined"
        case ("labkit", "plans"):
            return "plan"
        case ("labkit", room, *_) if room in SHARED_ROOMS:
            return room
        case ("lessons", _, part, *_):
            return part if part in MAY_IMPORT else ""
    return ""


def dotted(path: Path, root: Path) -> tuple[str, ...]:
    """Return a file's module name in parts; notebooks/ is on Python's path."""
    parts = path.relative_to(root).with_suffix("").parts
    parts = parts[1:] if parts[0] == "notebooks" else parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imported(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Return line and full dotted name of all that a file imports: at its top, inside functions, by name in a call."""
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
    inside = _place((*base.split("."), name), root)
    return f"{base}.{name}" if inside.is_dir() or inside.with_suffix(".py").exists() else base


def _place(parts: tuple[str, ...], root: Path) -> Path:
    """Return where a module lies, given its name in parts: a folder, or a file without its suffix."""
    return root.joinpath("notebooks" if parts[0] == "lessons" else "", *parts)


def _literal_import(call: ast.Call) -> str:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name not in {"import_module", "__import__", "run_module"} or not call.args:
        return ""
    return call.args[0].value if isinstance(call.args[0], ast.Constant) else ""


def walls(path: Path, root: Path = ROOT) -> list[str]:
    """Return what a file imports through a wall."""
    module = dotted(path, root)
    where = path.relative_to(root)
    allowed = "MAY_IMPORT in tests/house_rules.py says what it may import"
    found = [(line, name) for line, name in imported(path, root) if not _may(module, name, root)]
    return [f"{where}:{line} imports {name}: {allowed}" for line, name in found]


def _may(module: tuple[str, ...], name: str, root: Path) -> bool:
    own, parts = role(module), tuple(name.split("."))
    if (module[0], parts[0]) == ("labkit", "lessons"):  # it finds a lesson by the name that a plan or a command gives
        return False
    lab = module[1] if module[0] == "lessons" and len(module) > 1 else ""
    if parts[0] in sys.stdlib_module_names or _same_role(module, parts) or name in EVERYONE:
        return True
    if lab and parts[0] == "lessons" and len(parts) > 1 and parts[1] != lab:
        return False
    if own == "engine" and parts[:3] == DEBUGGER:
        return True
    if own not in FAR_SIDE and _is_far(parts, root):
        return False
    if own not in MAY_IMPORT:
        return True
    return any(f"{name}.".startswith(f"{entry.format(lab=lab)}.") for entry in MAY_IMPORT[own])


def _same_role(module: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether both are in one room (engine, node) or in one part of one lab, as its plan or its worker."""
    depth = 3 if module[0] == "lessons" else 2
    return role(module) == role(other) != "" and module[:depth] == other[:depth]


def _is_far(parts: tuple[str, ...], root: Path) -> bool:
    """Whether the host must not import a module. The host reads the bugs' symptoms where they need no torch."""
    if role(parts) == "bugs":
        names = [name for _, name in imported(_place(parts, root).with_suffix(".py"), root)]
        return any(_is_far(tuple(name.split(".")), root) for name in names)
    return parts[0] in GPU_LIBRARIES or role(parts) in FAR_SIDE


def import_circles(paths: list[Path], root: Path = ROOT) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle, or one that imports itself; types included."""
    graph = networkx.DiGraph()
    known = {".".join(dotted(path, root)) for path in paths}
    for path in paths:
        graph.add_edges_from((".".join(dotted(path, root)), name) for _, name in imported(path, root) if name in known)
    groups = networkx.strongly_connected_components(graph)
    return sorted(sorted(group) for group in groups if len(group) > 1 or graph.has_edge(*[*group] * 2))


def habits(path: Path) -> list[str]:
    """Return a file's bad habits: a vague name, bulk, no docstring, a type left out, a shell, a pickle, a locale."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    found = ["a vague name"] if path.stem in VAGUE_NAMES else []
    if len(text.splitlines()) > MOST_LINES:
        found.append(f"more than {MOST_LINES} lines")
    if not ast.get_docstring(tree) and text.strip():
        found.append("no docstring")
    found += [f"leaves a {word}" for word in ("TODO", "FIXME", "XXX") if word in text]
    found += [f"{node.lineno}: {what}" for node in ast.walk(tree) if (what := _risk(node))]
    if path.name != PROVENANCE:
        marks = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "attrs"]
        found += [f"{node.lineno}: marks a table by itself, which labkit.provenance does" for node in marks]
    found += [f"{argument.lineno}: {argument.arg} without a type" for argument in _untyped(tree)]
    return [f"{path.name}: {what}" for what in found]


def _untyped(tree: ast.AST) -> list[ast.arg]:
    """Return the parameters of functions (not of lambdas) that cross the wall by name and do not say their type."""
    functions = [node.args for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = [argument for each in functions for argument in (*each.posonlyargs, *each.args, *each.kwonlyargs)]
    return [argument for argument in arguments if argument.arg in TYPED and argument.annotation is None]


def leaning(path: Path) -> list[str]:
    """Return what a test file imports of another test file, and what is private to labkit or a lesson."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        source = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        modules = [source] if source else names
        found += [f"{node.lineno} imports {name}" for name in modules if name.startswith("test_")]
        found += [
            f"{node.lineno} imports {name}"
            for name in names
            if source.startswith(("labkit", "lessons")) and name[0] == "_"
        ]
    return found


def _risk(node: ast.AST) -> str:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = {alias.name.split(".")[0] for alias in node.names} | {(getattr(node, "module", "") or "").split(".")[0]}
        if (getattr(node, "module", "") or "").endswith(".solutions"):
            return "imports solutions, which the students' package lacks: the lesson would have no exercises there"
        return "unpickles" if names & UNPICKLERS or any(map(OVER_LINKS.search, names)) else ""
    if not isinstance(node, ast.Call):
        return ""
    name = ast.unparse(node.func)
    shell = any(keyword.arg == "shell" and getattr(keyword.value, "value", 1) for keyword in node.keywords)
    if shell or name in {"os.system", "os.popen"}:
        return "starts a shell"
    if _follows_the_locale(node):
        return "reads or writes text in the encoding of the user's locale, which may not be UTF-8"
    if name == "torch.load" and not any(ast.unparse(keyword) == "weights_only=True" for keyword in node.keywords):
        return "unpickles"
    return "unpickles" if OVER_LINKS.search(name) or name.endswith("read_pickle") else ""


def _follows_the_locale(call: ast.Call) -> bool:
    """Whether a call opens text and names no encoding (ruff's PLW1514 asks that only of what it knows to be a Path)."""
    name, keywords = ast.unparse(call.func), {keyword.arg for keyword in call.keywords}
    if {"encoding", None} & keywords or name in (
        "os.open",
        "tarfile.open",
        "archive.open",
    ):  # a member of a zip is bytes
        return False
    if name == "open" or name.endswith(".open"):
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        return not any(re.fullmatch("[rwxa]b[+]?", str(getattr(value, "value", ""))) for value in values)
    needed = {"read_text": 1, "write_text": 2}.get(name.rpartition(".")[2], 0)  # arguments, where the last is it
    return len(call.args) < needed or (name.startswith("subprocess.") and "text" in keywords)
