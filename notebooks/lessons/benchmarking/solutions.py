"""Reference solutions of the exercises of lab 06, as a student would write them."""


def faster(before, after):
    import statistics

    def half_range(seconds):
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return (high - low) / 2

    old, new = statistics.median(before), statistics.median(after)
    if abs(old - new) <= half_range(before) + half_range(after):
        return None
    return old / new


def timed(step, synchronize, clock):
    import statistics

    for _ in range(3):
        step()
    seconds = []
    for _ in range(10):
        synchronize()
        start = clock()
        step()
        synchronize()
        seconds.append(clock() - start)
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return middle, (high - low) / 2, len(seconds)
