"""`sweep` computes quantities on grids of parameters, and returns a labelled dataset.

    sweep (curves) ─> grids ─> plan: a Request, its groups of variables, cut into blocks
                                 └─> work: runs the blocks, here or on an executor
                                       │     each asks `variables`: limit, exact law, samples
                                       └─> blocks: in memory, or in Zarr (`store`) ─> dataset

`saving` writes a dataset as a file.
"""
