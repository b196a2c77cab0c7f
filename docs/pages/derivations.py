"""The derivations, by `sparsity.derive`, as LaTeX."""

from itertools import groupby

import sympy

import sparsity
from sparsity.derivation import Derivation
from sparsity.kernels import ALL, ZOO, Kernel

_WORDS = """# Derivations

Written by `sparsity.derive` when this page is built. Each result is integrated or summed from the
definition of the weight $a$; nothing is typed in. $S = \\mathbb E|a| / \\sqrt{\\mathbb E a^2}$ is
small for focused attention. A limit that could not be derived is absent.

```python
import sparsity

sparsity.derive("relu2")  # typeset in a notebook
print(sparsity.derive("relu2").text())  # in a terminal
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


def _line(*formulas: str) -> str:
    inner = " \\\\\n".join(formulas)
    return f"$$\n\\begin{{aligned}}\n{inner}\n\\end{{aligned}}\n$$\n"


def _lines(derived: Derivation) -> str:
    """The rows of the derivation's LaTeX, those of one condition together, under its words."""
    said = "; ".join(derived.assumptions)
    out = [f"Assumes {said}.\n"] if said else []
    inner = derived.latex().removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}\n")
    rows = [row.strip().partition(" && ")[::2] for row in inner.split(" \\\\\n")]
    for condition, same in groupby(rows, lambda row: row[1]):
        formulas = [formula for formula, _ in same]
        if not condition:
            out += map(_line, formulas)
            continue
        words = "As" if r"\to" in condition else "With" if "=" in condition else "Case"
        out += [f"{words} ${condition[1:-1]}$:\n", _line(*formulas)]
    return "\n".join(out)
