"""A world in memory, in which the production scheduler lives: time, disk, processes."""
