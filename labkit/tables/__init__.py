"""Rows → tables, for more than one lab.

rates.py       samples or tokens per second
ledgers.py     bytes held and sent beside their formulas
alpha_beta.py  bus bandwidth, and the line fitted to it
profile.py     where a step's time went, and its spans
nodes.py       the nodes of a run
resnet.py      the published communication of a ResNet-18
published.py   figures as reports printed them
claims.py      claims of reports, recomputed
measures.py    the figures of a lesson that matter: for the card, the scorecard and comparisons
goals.py       what a run reaches of their goals
"""
