"""`python -m cronpoll.daemon`: the same as `cronpolld`."""

from cronpoll.daemon.main import main

main(prog_name="cronpolld")
