"""Hints for the exercises of lab 06: where to look, what the structure is, almost the code."""

HINTS = {
    "faster": (
        "One slow step in a list changes some averages much and others hardly. Which number does this lesson report?",
        "Take the median of each list, and half the distance between its quartiles. Only a difference above both "
        "halves together is a difference.",
        '`low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")`, and the half is `(high - low) /'
        " 2`. Return `old / new` where `abs(old - new)` is above the sum of the halves, otherwise None.",
    ),
    "timed": (
        "`step()` returns before its work is done. What must happen between the step and the second reading of "
        "the clock?",
        "First call the step a few times without a clock. Then, for each measurement: wait for earlier work, read"
        " the clock, step, wait, read the clock again.",
        "In a loop of ten: `synchronize()`, `start = clock()`, `step()`, `synchronize()`, `seconds.append(clock()"
        " - start)`. Before the loop, call `step()` three times.",
    ),
}
