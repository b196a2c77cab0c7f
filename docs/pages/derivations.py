"""The derivations, by `sparsity.derive`, as LaTeX."""

import sympy

import sparsity
from sparsity.kernels import ALL, ZOO, Kernel
from sparsity.symbolic import Derivation

_WORDS = """# Derivations

Written by `sparsity.derive` when this page is built. Each result is integrated or summed from the
definition of the weight $a$; nothing is typed in. $S = \\mathbb E|a| / \\sqrt{\\mathbb E a^2}$, small
for focused attention. A limit that could not be derived is absent.

```python
import sparsity

sparsity.derive("relu2")  # typeset in a notebook; print(….text()) in a terminal
```
"""


def page() -> str:
    """The page in Markdown."""
    parts = [_WORDS]
    for title, kernels in (("The article's kernels", ALL), ("Further kernels", ZOO)):
        parts += [f"## {title}\n", *map(_kernel, kernels)]
    return "\n".join(parts)


def _kernel(kernel: Kernel) -> str:
    head = f"### {kernel.name}: {kernel.title}\n"
    try:
        derived = sparsity.derive(kernel)
    except sparsity.NoClosedForm:
        weight = _line(f"a = {sympy.latex(kernel.weight)}")
        words = "No closed form was found; `evaluate` integrates the definition numerically.\n"
        return f"{head}\n{weight}\n{words}"
    return f"{head}\n{_lines(derived)}"


def _line(formula: str) -> str:
    return f"$$\n{formula}\n$$\n"


def _lines(derived: Derivation) -> str:
    """Each row of the derivation's LaTeX as a formula of its own, under its own condition."""
    said = "; ".join(derived.assumptions)
    out = [f"Assumes {said}.\n"] if said else []
    inner = derived.latex().removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}\n")
    for row in inner.split(" \\\\\n"):
        formula, _, condition = row.partition(" && ")
        condition = condition.removeprefix("(").removesuffix(")")
        out += [f"${condition}$:\n"] if condition else []
        out.append(_line(formula.replace("&", "", 1).strip()))
    return "\n".join(out)
