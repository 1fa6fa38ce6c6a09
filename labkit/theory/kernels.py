"""Names of GPU kernels: short enough to read, and sorted into families."""

from __future__ import annotations

import re

# The first line with a word that the name holds decides: attention's matrix products are attention, a copy that runs as
# an element-wise kernel is a copy. A compiled kernel (triton_) is named after all that it fuses, so it comes early.
FAMILIES = (
    ("nccl", ("nccl", "gloo")),
    ("attention", ("flash", "fmha", "attention", "sdpa")),
    ("matmul", ("gemm", "cutlass", "xmma", "nvjet", "splitk", "triton_tem", "addmm", "::mm", "bmm", "linear")),
    ("reduce/norm", ("triton_red", "triton_per")),
    ("elementwise", ("triton",)),
    ("copy", ("memcpy", "memset", "catarray", "split_with_sizes", "chunk_cat", "copy")),
    ("optimizer", ("multi_tensor", "adam", "_foreach_")),
    ("reduce/norm", ("reduce_kernel", "norm", "softmax", "::sum", "::mean")),
    ("elementwise", ("elementwise", "::add", "::sub", "::mul", "::div", "::relu", "::gelu", "::silu")),
)
LONGEST = 60


def family(name: str) -> str:
    """Return the family of a kernel (on a CPU, of an operator): nccl, attention, matmul, …; "other" for the rest."""
    name = name.lower()
    families = (family for family, words in FAMILIES if any(word in name for word in words))
    return next(families, "other")


def short_name(name: str) -> str:
    """Return a kernel's name without return type, namespaces, template arguments and parameters; ≤ 60 characters."""
    name = name.replace("(anonymous namespace)::", "")
    bare = None
    while bare != name:
        bare, name = name, re.sub(r"<[^<>]*>", "", name)
    name = name.partition("(")[0].rpartition("::")[2].strip().removeprefix("void ")
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def collective(name: str) -> str:
    """Return which collective an NCCL kernel or a gloo operation runs: all_gather, reduce_scatter, all_reduce, …"""
    kernel = re.match(r"nccl\w*?Kernel_([A-Za-z]+)", name)
    if kernel is None:
        return name.rpartition(":")[2]
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kernel[1]).lower()
