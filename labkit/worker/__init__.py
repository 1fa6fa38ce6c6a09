"""What several labs' workers need; torch lives here, in the lessons' workers, and on the engine's far side.

settings.py     a worker before a point and after it: groups, threads, precision, memory
clocks.py       when each step ran, on one clock
trainer.py      one training step, whatever the strategy
stepping.py     a model that trains on random tokens: its times, what it holds and sends
strategies.py   replicate or shard: what each does to a model before the first step
equality.py     training under a strategy beside one process
collectives.py  what a step sends, counted while it happens
counting.py     what a forward keeps, and both ledgers of a step
on_ranks.py     an answer that several ranks run together, tried by a lesson's driver
allocations.py  memory in use, and who allocated it
trace.py        what a step's time goes into, by torch's profiler
probes.py       what tells whether two runs' hosts and GPUs can be compared
transformer.py  the course's transformer
bert.py         BERT, whole or cut into stages
gpt.py          GPT-2, and the samples that it trains on
"""
