"""What can be said before anything runs, for more than one lab; standard library only.

sizes.py        the units of sizes, in bytes
shapes.py       a model as the shapes of its parameters, and published configurations
transformer.py  the course's transformer
bert.py         what BERT's forward keeps
gpt.py          GPT-2: shapes, bytes, FLOP
resnet.py       a residual network
cifar10.py      the images that it reads
memory.py       what a rank holds at the fullest moment of a step
step_memory.py  what the course's transformer holds on one GPU, phase by phase
allocations.py  the allocator's history
traffic.py      what a step sends, by strategy
alpha_beta.py   what a transfer takes by its size: a latency and a bandwidth
intervals.py    what spans of time share
kernels.py      names of GPU kernels, sorted into families
"""
