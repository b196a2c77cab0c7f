"""Definitions as numbers: three arithmetics, and the expression evaluated in each."""
