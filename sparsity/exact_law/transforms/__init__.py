"""Transforms of one weight: E[1 − e^(−x)] and E[x^k e^(−x)] with x = e^u |f|^power.

laplace: the transforms of one law, or of several at once
└─ shared_nodes: the nodes that laws near each other share, and the error they make
└─ nodes: the law of f(s) as nodes and weights, from the panels of `limit`
"""
