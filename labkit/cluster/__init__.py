"""More than one node: Slurm starts one station on each, and the same launch runs over all of them.

    settings.py    cluster.toml: partition, account, time, GPUs per node, modules, interface
    slurm.py       what Slurm says of a job, and the commands that are given to it
    job.py         the nodes that a launch may use: those of this allocation, or of a job that is submitted
    hold.py        what a submitted job does itself: it keeps the nodes while there is a station on them
    session.py     the kernel's end: one srun that has a station on each node
    station.py     the agent on a node (far side)
    meeting.py     where the nodes' agents and workers meet: a store that listens on one interface (far side)
    interface.py   which network interface that is
    launch.py      a plan in, a Run out, over several nodes

No file here is imported by a launch on one node.
"""
