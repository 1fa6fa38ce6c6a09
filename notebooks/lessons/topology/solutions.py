"""Reference solutions of the exercises of lab 01, as a student would write them."""


def cpus(text):
    numbers = []
    for part in text.split(",") if text != "N/A" else []:
        ends = part.split("-")
        numbers += range(int(ends[0]), int(ends[-1]) + 1)
    return numbers


def slowest_hop(ring, matrix):
    order = ["PIX", "PXB", "PHB", "NODE", "SYS"]

    def slowness(path):
        if path.startswith("NV"):
            return 0, -int(path[2:])
        return 1, order.index(path)

    hops = [matrix[ring[i - 1]][ring[i]] for i in range(len(ring))]
    return max(hops, key=slowness)
