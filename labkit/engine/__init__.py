"""A plan in, a table out: starts the node's workers, follows them, and brings their rows back. It knows no lab.

The kernel's side:

    plan.py             a frozen set of knobs that checks itself, and its points
    launches.py         plan → workers of this node → Run, or one clear error; what a launch took and gave back
    launch_settings.py  how many nodes and GPUs a launch may use, and cluster.toml
    reservation.py      which GPUs and cores a launch gets, in turn with other launches
    locks.py            how they wait for each other
    session.py          the kernel's end of the agent: one process beside each kernel
    needs.py            what every launch needs of the machine, asked for before the first one
    watch.py            follows a run: progress, stalls, the end of its processes
    progress.py         the bar that shows it
    interrupts.py       Ctrl-C at any moment ends all and loses nothing
    diagnosis.py        who failed first, and where every rank stands
    log_text.py         what of a rank's log is shown
    errors.py           what can go wrong, in the user's words
    run.py              a run's rows as tables, where its ranks are, its summary
    run_folder.py       its file names, and whether it takes writes
    recordings.py       recorded runs: replay, and which one a lesson reads

The agent, a process beside the kernel:

    agent.py            starts a forkserver, and a process for each launch
    forkserver.py       the process that holds torch, and forks each launch
    loaded.py           what it does first, and
    preload.py          what it imports
    elastic.py          a launch: workers forked and followed by torchrun's elastic agent
    rendezvous.py       where ranks and agents meet, of one node or several: no stranger can run code there
    sampler.py          looks at host and GPUs while a run goes on

The workers:

    enter.py            how a fresh process becomes a worker
    worker.py           rank, device, group, clock, record
    failure.py          what a worker reports of its own end
    node_clock.py       one clock for several nodes
    call.py             a function of a file, called in a worker: what an exercise launches
    called_function.py  calls it, without labkit
    debug.py            one worker in the kernel itself, for breakpoints

On all sides:

    processes.py        which processes belong to a run, and how all of them end
    system_limits.py    which limit of the system is behind a process or a file that could not be had
    files.py            a file replaced in one step; writes to a disk that is full or stands still
    messages.py         what a kernel asks of its agent, and what that tells back
    json_lines.py       files of rows and events: read as they grow, or only counted
"""
