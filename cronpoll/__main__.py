"""`python -m cronpoll`: the same as `cronpoll`."""

from cronpoll.cli.main import main

main(prog_name="cronpoll")
