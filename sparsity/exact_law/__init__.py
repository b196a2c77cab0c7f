"""Rows of n tokens: exact laws by one-dimensional integrals."""
