"""More than one node: a station on each, started by Slurm or a script of ours, and the same launch over all of them.

    launch.py          a plan in, a Run out, over several nodes
    session.py         the kernel's end: one srun that has a station on each node
    session_cache.py   that session, kept between two launches
    shared_folder.py   the folder by which the kernel and the stations talk, beside srun
    station.py         the agent on a node (far side)
    connectivity.py    by which network interface a node reaches the others (far side)
    watch.py           follows a run, and says which node is silent and where each rank stands
    allocation.py      the nodes that a launch may use: those of the Slurm allocation in which the kernel runs
    slurm.py           what Slurm says of a job
    namespaces.py      two network namespaces of this machine in the place of nodes
    namespace_srun.py  what srun does, for those: a station in each, and a link between them
    by_hand.py         two machines without Slurm: lines to paste, and a run that is followed

No file here is imported by a launch on one node, and none by labkit.engine.
"""
