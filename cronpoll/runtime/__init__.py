"""Where steps meet the world: clock, runs, the loop, the log."""
