"""Where decisions meet the world: clock, runs, the loop, the log."""
