"""Experiments: small models trained here and a real one, beside what the laws say of them.

    python -m experiments [NAME …] [--tiny] [--out DIR]

`frame` runs an experiment cell by cell and writes its table, figure and page; `training` is Adam
on many models at once; `weights` are the attention weights of the library's kernels; `statistics`
are correlations and slopes with intervals. `real_sinks` looks into a model that was trained
elsewhere, which `real_model` opens and `layerwise` runs. Of `coca`, `language_model` is a model of
bytes, `head_law` the law of n_eff of its heads, `readings` what is measured at many lengths. Each
experiment is one module: settings with seeds, the model, what is measured, the verdict, the figure;
those of `real_sinks` and `coca` have modules of their own for the verdict. What was expected stands
in `predictions/`, committed before the results in `results/`.

`python -m experiments rules` judges claims of other papers, and by `recorded`, the numbers of the
committed tables, what trained models say of claims; it trains nothing.

`python -m experiments.real_heads` holds the rows and heads of that model against their laws.
"""
