"""A kernel's definition as numbers, with proven bounds: the one source of every numerical route.

A SymPy expression is evaluated in one of three arithmetics, which offer the same operations:

    Approx      a point:      m·e^k with a running bound on its error     (values)
    Interval    a segment:    its ends, rounded outward                   (bounds on the real axis)
    ComplexBox  a rectangle:  bounds all around a segment                 (analytic there, or not)

    Kernel.weight ──> program.evaluate, a Split (constant + rest) of one of the three
                            ^                                |
       Branches: sides of   |                                v
       |x|, max, steps ─────┘     Definition.values_at, .bounds_on_segments, .bounds_on_boxes

Quadrature (`sparsity.limit`) cuts the score axis by the bounds and sums the values.
"""
