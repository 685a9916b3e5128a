"""cronpolld: a scheduler that lives in a process of its own, under an init system, in a container,
on a laptop."""
