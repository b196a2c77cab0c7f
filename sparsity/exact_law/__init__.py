"""Rows of n tokens: the mean of a quantity over rows, as integrals with a bound on their error.

`exact` is the door. Where the weights are independent given a time t, the mean over rows is one
integral over u = ln t, whatever the kernel and the steps (`engine`). Maps of whole rows have laws
of their own (`maps`), most of which are a contour integral in the complex plane, too. How a number
passes through:

    exact ─┬─ engine ─┬─ laplace: E[x^k e^(−x)] of one token ── shared_nodes ── nodes
           │          ├─ token_sums: of all tokens of a row ── token_pieces, shifted_sums
           │          ├─ ranked: what goes by rank
           │          └─ sink_chance: the chance that sinks take a share
           └─ maps ───┬─ sparsemax, entmax ── threshold_maps ── gaussian_tail
                      ├─ sparsemax_n_eff, entmax_n_eff: one integral more
                      └─ top_k, router
    rules: the rules of integration that all of these share, and the work that is refused
    regimes: what softmax rows do, by the exact law and its leading orders
"""
