"""The benchmark: cronpoll beside its peers, in one process run, on this machine.

    python -m tests.bench [--smoke] [--only NAME] [--output FILE.json]

One module per family of cases, each with `run(smoke) -> list[Row]`. Every case is repeated; the peers take their turns
between ours, so that what else the machine does hits all of them. Numbers are compared by their best round (the one least
disturbed); the median is printed beside it. Nothing here asserts a time, and a target that is missed is a line in the
report, not a failure. `--smoke` shows only that it runs: its sizes are too small to mean anything.
"""
