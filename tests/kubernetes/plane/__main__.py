"""Builds the control plane; see the package."""

import sys

from tests.kubernetes.plane import main

main(sys.argv[1:])
