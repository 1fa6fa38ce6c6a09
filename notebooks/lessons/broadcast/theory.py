"""The broadcasts' names, and the least time that physics allows each of them."""

from __future__ import annotations

NAMES = {
    "links": "all host links (yardstick)",
    "direct": "direct",
    "staged": "staged",
    "nccl": "one copy, then NCCL",
    "pipelined": "pipelined",
    "scatter_all_gather": "scatter + all-gather",
}


def least_seconds(method: str, size: float, gpus: int, chunks: int, host: float, nvlink: float) -> float:
    """Return the least time of a broadcast of `size` bytes by datasheet; NaN where a rate is NaN.

    `host` is the rate of one host link and `nvlink` that of one GPU's NVLinks together, in bytes/s. What GPU 0 sends to
    each of the others shares its NVLinks; NCCL passes the tensor on in a ring, so that each GPU sends it once. Where
    the tensor goes chunk by chunk, only the last chunk's forwards come after the last copy from the host.
    """
    through_one, through_all = size / host, size / (gpus * host)
    forwards = size * (gpus - 1) / nvlink  # one GPU sends the whole tensor to each of the others
    return {
        "links": through_all,
        "direct": through_one,
        "staged": through_one + forwards,
        "nccl": through_one + size / nvlink,
        "pipelined": through_one + forwards / chunks,
        "scatter_all_gather": through_all + forwards / (gpus * chunks),
    }[method]
