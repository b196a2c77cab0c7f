"""What real attention does: streamed, measured and monitored, with the theory beside it.

`streaming` takes sums over rows block by block, `measurement` reads whole matrices and models,
`monitoring` watches a training run, `torch` catches the calls of models of PyTorch; `job` measures
one of transformers and `report` writes the page of what it found. `describe` makes rows of the
theory from a configuration alone (`configuration`, by `sources`), `fused` and `largest_logit` are
instruments by themselves. Nothing of the theory imports this package.
"""
