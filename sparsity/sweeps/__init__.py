"""Grids of parameters to labelled data."""
