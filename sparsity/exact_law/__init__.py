"""Rows of n tokens: the mean of a quantity over rows, as integrals with a bound on their error.

`exact` is the door. Where the weights are independent given a time t, the mean over rows is one
integral over u = ln t, whatever the kernel and the steps (`engine`). Maps of whole rows have laws
of their own, which `map_laws` knows. How a number passes through:

    exact ─┬─ engine ─┬─ sums/        of all tokens of a row ── transforms/   of one token
           │          ├─ ranked       what goes by rank
           │          ├─ keys_for_mass  the fewest keys that hold a share
           │          ├─ below        what lies under a threshold below the largest
           │          ├─ overlap      what two rows have in common
           │          ├─ needle       what goes by one key
           │          └─ sink_chance  the chance that sinks take a share
           └─ map_laws ── maps/       sparsemax, entmax, top-k softmax, routed softmax

    integration: the rules that all of these share, and the work that is refused
    regimes: what softmax rows do, by the exact law and its leading orders
"""
