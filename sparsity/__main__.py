"""`python -m sparsity` is the command `sparsity`."""

from sparsity.cli import main

main()
