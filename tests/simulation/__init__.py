"""Whole-system simulation: the production scheduler on simulated clock, disk and processes, through
lives that chance wrote.

    python -m tests.simulation [--days N] [--seed N] [--long]     explore
    python -m tests.simulation --replay TEXT                      live one plan again, and tell it

`plan` says what can happen in a life, as data that Hypothesis writes and shrinks. `life` lives it.
Each life is judged by the guarantees, over the journal and over the log; by what its callbacks saw;
by what it is asked (`asked`: whether `cronpoll plan` foretells each reload, and whether the log,
written and read again, gives the same state); and, if nothing in it depends on the moment a disk
fails, by `model`, a small scheduler of its own that says beforehand what has to start when, and
what has not.
"""
