"""The suspects of lab 09 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def ring_all_reduce(chunks):
    for step in range(ranks - 1):
        pass_on(chunks, (rank - step) % ranks, add=True)
    for step in range(ranks - 1):
        pass_on(chunks, (rank + 1 - step) % ranks)

def bus_bandwidth(call, message_bytes):
    call()
    seconds = []
    for _ in range(repeats):
        barrier()
        start = clock()
        call()
        synchronize()
        seconds.append(clock() - start)
    factor = 2 * (ranks - 1) / ranks
    return factor * message_bytes / median(seconds)
"""
CODES = edited(
    _RIGHT,
    {
        "unsynchronised": [("        call()\n        synchronize()\n", "        call()\n")],
        "cold": [
            (
                "    call()\n    seconds = []\n    for _ in range(repeats):\n",
                "    seconds = []\n    for _ in range(1):\n",
            )
        ],
        "wrong_factor": [("    factor = 2 * (ranks - 1) / ranks\n", "    factor = 1\n")],
        "no_all_gather": [
            ("    for step in range(ranks - 1):\n        pass_on(chunks, (rank + 1 - step) % ranks)\n", "")
        ],
        "rank_0_only": [
            (
                "    for step in range(ranks - 1):\n        pass_on(chunks, (rank + 1 - step) % ranks)\n",
                "    send(chunks[(rank + 1) % ranks], to=0)\n",
            )
        ],
    },
)
