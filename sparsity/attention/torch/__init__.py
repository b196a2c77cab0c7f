"""Attention in PyTorch: calls of a model caught, read, checked and measured, some rows or all.

    interception   when a pass begins and ends, which module runs, and what it calls
      modules      which modules may attend, where they find their functions, which made no call
      call         what a function was given and gave; do the logits of that make its output?
      replay       compiled code: the same pass again, uncompiled, to be seen
        ├── rows   statistics of some rows ── watch      while a model trains or runs
        └── tiles  sums over every row ── models         a model of transformers on a text

PyTorch is loaded on first use.
"""
