"""Reference solutions of the exercises of lab 01, as a student would write them."""


def slowest_hop(ring, matrix):
    order = ["PIX", "PXB", "PHB", "NODE", "SYS"]

    def slowness(path):
        if path.startswith("NV"):
            return 0, -int(path[2:])
        return 1, order.index(path)

    hops = [matrix[ring[i - 1]][ring[i]] for i in range(len(ring))]
    return max(hops, key=slowness)


def best_ring(gb_per_s, numa, count):
    from itertools import permutations

    def slowest(order):
        return min(gb_per_s[order[i - 1]][order[i]] for i in range(count))

    best = max(permutations(range(len(gb_per_s)), count), key=slowest)
    return [(gpu, numa[gpu]) for gpu in best]
