"""`sweep` computes quantities on grids of parameters, and returns a labelled dataset.

sweep (curves) ─> grids ─> blocks: a Request, its groups of variables, cut into blocks
                             │     each asks `variables`: limit, exact law, samples
                             └─> results: arrays, and a Zarr group from which a run goes on
"""
