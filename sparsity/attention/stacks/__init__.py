"""Deep stacks of random attention layers: over-mixing, influence, and the sink metric.

`mixing` draws a stack and runs it, `mixing_law` has its averages in closed form, `collapse` and
`influence` are what is measured of either, and `sinks` is the metric of attention arrays.
"""

from sparsity.attention.stacks import collapse, influence, mixing, mixing_law, sinks

__all__ = ["collapse", "influence", "mixing", "mixing_law", "sinks"]


def __dir__() -> list[str]:
    return sorted(__all__)
