"""The benchmark: cronpoll beside its peers, in one process run, on this machine.

    python -m tests.bench [--smoke] [--only NAME] [--output DIR|FILE.json]

Prints a table; with `--output` writes it down, with everything that was measured as JSON and a plot
as SVG. A whole run takes about an hour, a third of which is spent waiting for minutes of the real
clock (`latency`, `idle_cpu`).

One module per family of cases, each with `run(smoke) -> list[Row]`. Every case is repeated; the
peers take their turns between ours, so that what else the machine does hits all of them. Numbers
are compared by their best round (the one least disturbed); the median is printed beside it. Nothing
here asserts a time, and a target that is missed is a line in the report, not a failure. `--smoke`
shows only that it runs: its sizes are too small to mean anything.
"""
