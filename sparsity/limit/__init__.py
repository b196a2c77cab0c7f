"""The limit of long rows: S and other quantities where sums over tokens average themselves.

`evaluate` takes a stable closed form where one exists, else quadrature of the definition with a
proven error bound. How a number passes through the modules:

    evaluate ──> closed_form                     exp, relu², identity, nonnegative, decayed
       |
       ├─────> quadrature ──> patches            many (β, γ) at once, by shared nodes
       |            |            |
       |            └──> moments ┴─> panels      E|f|^p; the axis cut where f is proven smooth
       |                    ^           ^
       ├─────> long_rows ─> score_moments ─> densities   rows of tokens; any law of scores
       |
       └─────> map_limits                        differential, forgetting, performer

`preview` draws a limit at once, without a bound, while the proven value is on its way.
"""
