"""The command `cronpoll`: one small file per family of commands."""
