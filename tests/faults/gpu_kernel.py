"""A kernel that launches on GPUs and is going to be killed."""

from gpu_plan import GpuFaults

from labkit.launching import launch

launch(GpuFaults(faults=("absent",)), progress=False)
