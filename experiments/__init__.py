"""Experiments: small models trained here, beside what the laws say of them.

    python -m experiments [NAME …] [--tiny] [--out DIR]

`frame` runs an experiment cell by cell and writes its table, figure and page; `training` is Adam
on many models at once; `weights` are the attention weights of the library's kernels; `statistics`
are correlations and slopes with intervals. `language_model` is a model of bytes, `head_law` the law
of n_eff of its heads, `readings` what is measured at many lengths. Each experiment is one module:
settings with seeds, the model, what is measured, the verdict, the figure; the verdict of `coca` is
a module of its own. What was expected of it stands in `predictions/`, committed before the results
in `results/`.
"""
