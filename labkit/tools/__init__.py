"""Commands behind make targets.

bench.py      what launch() costs beside torchrun
images.py     fetches CIFAR-10 (make data)
work.py       the student's copies (make lab, make reset)
handout.py    what a class gets
grade.py      judges what a class handed in
offline.py    .venv on a node without a registry
pip_for.py    pip for another Python than the one that runs (make wheels, make lock)
"""
