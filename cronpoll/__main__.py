"""`python -m cronpoll`: the same as `cronpoll`, and besides `python -m cronpoll run module:tasks`,
which schedules the tasks of a program."""

import sys

if len(sys.argv) > 2 and sys.argv[1] == "run" and any(":" in word for word in sys.argv[2:]):
    from cronpoll.cli.program import program

    program(sys.argv[2:])
else:
    from cronpoll.cli.main import main

    main(prog_name="cronpoll")
