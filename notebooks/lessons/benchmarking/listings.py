"""The suspects of lab 06 as code, shortened: the right program, and what each bug changes in it."""

from labkit.course.lineup import edited

_RIGHT = """
def benchmark(bench, repeats):
    bench.model.eval()
    batch = bench.batch()
    for _ in range(3):
        bench.step(batch)
    seconds = []
    for _ in range(repeats):
        bench.clear()
        bench.synchronize()
        begun = bench.clock()
        bench.step(batch)
        bench.synchronize()
        seconds.append(bench.clock() - begun)
    return seconds
"""
CODES = edited(
    _RIGHT,
    {
        "unsynchronised": [("        bench.step(batch)\n        bench.synchronize()\n", "        bench.step(batch)\n")],
        "first_inside": [("    for _ in range(3):\n        bench.step(batch)\n", "")],
        "dropout_on": [("    bench.model.eval()\n", "")],
        "uncleared": [("        bench.clear()\n", "")],
        "data_inside": [
            ("        bench.step(batch)\n        bench.sync", "        bench.step(bench.batch())\n        bench.sync")
        ],
    },
)
