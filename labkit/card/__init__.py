"""The node's card: key figures of all labs beside their limits and the recorded reference, with a verdict each.

__main__.py    the command line of `make card`
readings.py    a run → the key figures that it shows; the recorded runs of a GPU model → the reference
verdicts.py    a figure, its limit and its reference → sound, below, impossible, not comparable, not measured
criteria.py    card.toml: which figures count, how far below is a failure, goals of the site
cards.py       readings → the card: rows with verdicts, the node, its conditions; card.json
formats.py     the card as card.csv and as JUnit XML, and as lines of a terminal
card_html.py   the card as the first part of the report's first page
measure.py     what `make card` launches
options.py     options that `make card` and `make run` share, and the status of --fail-on
fleet.py       the cards of several nodes, each beside those of its kind
fleet_html.py  the fleet's page: nodes × key figures
on_nodes.py    what `make card ARGS="--nodes 8"` starts on the nodes of a Slurm allocation
publish.py     writes the card in all its forms, and the report's first page
soak.py        all GPUs at full load for minutes (`--soak`): rate, clock, temperature, memory read back
history.py     the reports of a runs folder, by date: which are kept, what each says of its node
compare.py     two runs or reports side by side, and which conditions changed between them (`make compare`)
trends.py      each key figure by date, drawn
"""
