"""Recorded errors: what every route is off by today, held against references of 30 digits.

    inputs ──> cells ──> references ──> table (benchmarks/results/recorded_errors.csv) <── search
                                             │
                     tests: no cell is off by more than a small multiple of what is recorded

A reference is computed without the library: kernels, laws and maps are written anew in ball
arithmetic and mpmath (`score_laws`, `row_laws`, `few_tokens`). One bound for all would let most
routes lose digits unseen: the closed forms are within 1e−15 where they promise 1e−13.
"""
