"""Where state is kept. `api` says what is promised; `journal` keeps it in a directory, `memory` in
memory."""
