"""The rows and heads of a real model, beside the laws of Gaussian rows of their n and spread.

    SPARSITY_MODEL=DIR python -m experiments.real_heads [--out DIR]

    rows       texts measured; Gaussian rows of the same n and γ̂ beside them; five claims on rows
    parts      the scores of heads taken apart: profile by distance, key bias, content
    constants  the law given the largest logit, with one constant κ of each head
    heads      why real rows miss the exact law: six claims on heads

`__main__` writes the page, the numbers and the figure. What was found with all texts, and with
models and tables that are no longer made here, stands in `benchmarks/results`: smollm2.md,
head_law.md and corpus.md, with the claims and their numbers in the .json beside them.
"""
