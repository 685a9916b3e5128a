"""Other schedulers' files in the words of the registry file: crontabs, and Kron's krontabs.

    lines        lines, and remarks about them
    fields       the five fields            guessing    whose crontab it is, and of which kind
    environment  environment lines          parameters  words and values of Kron's syntax
    commands     commands and their input   directives  @win, @dist, @only ...
    names        names made of commands     kronline    one line of a krontab
    crontab      a crontab, line by line    krontab     a krontab, line by line
    takeover     lines out of force, and back

Nothing here reads or writes a file.
"""
