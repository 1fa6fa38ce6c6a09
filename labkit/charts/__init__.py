"""The canvas and palette, and the parts that figures are composed of.

canvas.py       palette, typography, the footer that names the source
ink.py          ink for letters on a colour
parts.py        panels, rows with bars and marks, lanes of spans
ledgers.py      what a rank holds, item by item and over time
profile.py      where a step's time goes
conditions.py   what GPUs or host did during a run
nodes.py        the nodes of a run, and the network between them
calibration.py  a reader's predictions beside what was measured
description.py  a chart in words
knobs.py        knobs beside the picture that they change: an explorer
svg.py          the drawings of explorers
"""
