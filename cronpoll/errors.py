"""The errors that a program can catch: `from cronpoll.errors import ManualStartRefusedError`."""

from cronpoll.core.errors import *  # noqa: F403  the same names, in the place where one looks
