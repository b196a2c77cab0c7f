"""Deep stacks: over-mixing, influence, and the sink metric."""

from sparsity.stacks import collapse, influence, mixing, mixing_law, sinks

__all__ = ["collapse", "influence", "mixing", "mixing_law", "sinks"]
