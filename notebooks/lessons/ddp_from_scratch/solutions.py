"""Reference solutions of the exercises of lab 10, as a student would write them."""


def best_count(total_bytes, call_s, bytes_per_s):
    def cost(count):
        return count * call_s + total_bytes / count / bytes_per_s

    below = max(1, int((total_bytes / bytes_per_s / call_s) ** 0.5))
    return min(below, below + 1, key=cost)


def started(buckets, arrivals):
    arrived, sent, starts = set(), 0, []
    for weight in arrivals:
        arrived.add(weight)
        starts.append([])
        while sent < len(buckets) and set(buckets[sent]) <= arrived:
            starts[-1].append(sent)
            sent += 1
    return starts
