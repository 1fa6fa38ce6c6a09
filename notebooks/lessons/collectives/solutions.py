"""Reference solutions of the exercises of lab 09, as a student would write them."""


def bus_bandwidth(collective, ranks, message_bytes, seconds):
    share = (ranks - 1) / ranks
    factor = {"all-reduce": 2 * share, "broadcast": 1, "send/recv": 1}.get(collective, share)
    return factor * message_bytes / seconds / 1e9


def ring_step(rank, step, ranks):
    send = (rank - step) % ranks
    receive = (send - 1) % ranks
    return send, receive, step < ranks - 1
