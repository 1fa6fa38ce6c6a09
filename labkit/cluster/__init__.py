"""More than one node: a station on each, started by Slurm or a script of ours, and the same launch over all of them.

    slurm.py       what Slurm says of a job, and the commands that are given to it
    job.py         the nodes that a launch may use: those of this allocation, or of a job that is submitted
    hold.py        what a submitted job does itself: it keeps the nodes while there is a station on them
    session.py     the kernel's end: one srun that has a station on each node
    desk.py        the folder that the kernel and the stations share
    station.py     the agent on a node (far side)
    look.py        what it sees of the other nodes, its interface, the run's folder (far side)
    source.py      which labkit a node has
    ground.py      what the run has lost, from what the stations see
    interface.py   by which network interface the nodes reach each other
    namespaces.py  two network namespaces of this machine in the place of nodes
    spread.py      what srun does, for those: a station in each, and a link between them
    launch.py      a plan in, a Run out, over several nodes
    by_hand.py     two machines without Slurm: lines to paste, and a run that is followed

No file here is imported by a launch on one node, and none by labkit.engine.
"""
