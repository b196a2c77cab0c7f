"""Do the instruments agree? Cells, tests and the reference grid.

    reference_grid, or applicable: the pairs of instruments that answer for a row
      ─> cells: what is asked, and how each instrument answers it
      ─> verify: sample a family, compare ─> outcome: Cell, ExactCell, CrossCheck

A statistical cell holds a theory against a sampler, an exact cell two theories against each other.
"""
