"""Reference solutions of the exercises of lab 17, as a student would write them."""


def mfu(tokens_per_s, parameters, layers, hidden, sequence, peak_tflop_per_s):
    flop = 6 * parameters + 12 * layers * hidden * sequence
    return tokens_per_s * flop / (peak_tflop_per_s * 1e12)
