"""`python -m cronpoll.operator` is `kron-operator`."""

from cronpoll.operator.main import main

main(prog_name="kron-operator")
