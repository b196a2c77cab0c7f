"""Do the instruments agree? Cells, tests and the reference grid.

    reference_grid, or a row ─> cells: what is asked, and which two instruments answer
      ─> verify: sample a family, compare by `ztest` ─> outcome: Cell, ExactCell, CrossCheck

A statistical cell holds a theory against a sampler, an exact cell two theories against each other.
"""
