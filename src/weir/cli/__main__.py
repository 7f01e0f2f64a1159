"""`python -m weir.cli`."""

from weir.cli.main import main

main()
