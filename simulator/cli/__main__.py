"""`python -m simulator.cli` is `infercast`."""

from simulator.cli import main

main()
