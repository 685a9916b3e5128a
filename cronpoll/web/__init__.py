"""`cronpoll serve`: the page and its API, in a process of its own. It reads through `Reader`, and
asks the daemon's control socket for live numbers and actions."""
