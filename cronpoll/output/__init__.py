"""What runs print: kept in files of the state directory, bounded, and readable by anybody who may
read it.

Use

    keeper = Keeper(state_directory, clock, limits)    # the daemon's: one thread follows all runs
    recording = keeper.record(task, run_id, started_at, tell)
    child = Popen(..., stdout=recording.stdout, stderr=recording.stderr)
    last_lines = await wrap_future(keeper.drain(recording))     # the run has ended
    keeper.close(recording, failed=False)

    output = OutputReader(state_directory)             # beside it, after its death, on a copy
    for run in output.runs(task="backup"): ...
    for item in output.lines(run): ...                 # Line or Gap
    progress = output.read_on(run, position)           # a run in progress

Files

    output/live/STEM.out, STEM.err   what the process of a run has written: its own descriptors,
                                     opened to append. They outlive the daemon, as the process may
    output/STEM.idx                  beside them: whose they are, and when what came (`records`)
    output/STEM.ok, STEM.failed      a run that is over: one file, bounded (`records`)

STEM is the digest of the task's name, the start in milliseconds since 1970, and the run's id: names
of tasks can be anything, names of files cannot.

A run may print more than is kept. Then its beginning and its end are kept, and the gap is said in
words. While it still prints, the middle of its files is given back to the disk (holes), so that a
flood costs a bounded space.

Rooms: `names` (of files), `records` (bytes), `limits` (how much), `feeding` (into the log),
`recording` (one run), `keeper` (all of them, and what is kept of the past), `disk` (system calls),
`reading`.
"""
