"""Grids of parameters to labelled data.

    sweep (curves) ─> grids ─> Request ─> work: groups of variables, cut into blocks, run anywhere
                                            │     each block asks `variables`: limit, exact, sampled
                                            └─> store: in memory, or in Zarr (`blocks`) ─> dataset

`saving` writes a dataset as a file.
"""
