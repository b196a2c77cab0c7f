"""The exact laws of maps of whole rows, one module each; `exact_law.map_laws` has the table.

sparsemax, entmax ── threshold_maps ── gaussian_tail    support and participation, by Kac–Rice,
                                                        and by one integral more n_eff, S, max p
top_k ── router ── routed_weights                       the k-th largest score, or proxy
"""
