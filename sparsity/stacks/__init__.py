"""Deep stacks: over-mixing, influence, and the sink metric."""
