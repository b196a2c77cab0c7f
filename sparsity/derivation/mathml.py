"""Formulas as MathML by SymPy's printer, which browsers typeset without any script."""

from __future__ import annotations

from html import escape
from typing import Any

import sympy
from sympy.printing.mathml import mathml as print_mathml

from sparsity.derivation import Derivation, Limit

_S = "<mi>S</mi>"
_A = "<mi>a</mi>"
_MEAN = '<mi mathvariant="normal">E</mi><mspace width="0.17em"></mspace>'
_BAR = '<mo stretchy="false" lspace="0" rspace="0">|</mo>'
_M1 = f"{_MEAN}{_BAR}{_A}{_BAR}"
_M2 = f"{_MEAN}<msup>{_A}<mn>2</mn></msup>"
_WINDOW = f"<mi>n</mi><msup>{_S}<mn>2</mn></msup>"
METRIC = (
    f'<math display="block">{_S}<mo>=</mo>'
    f"<mfrac><mrow>{_M1}</mrow><msqrt>{_M2}</msqrt></mfrac></math>"
)


def mathml(expression: Any) -> str:
    """Return the inside of a <math> element for a SymPy expression."""
    # SymPy prints an index with its type, and pieces as a function of pairs.
    printed: Any = sympy.sympify(expression)
    printed = printed.xreplace({index: index.label for index in printed.atoms(sympy.Idx)})
    if printed.has(sympy.Piecewise):
        printed = sympy.piecewise_fold(printed)
    if isinstance(printed, sympy.Piecewise):
        pairs: Any = printed.args
        rows = "".join(
            f"<mtr><mtd>{mathml(value)}</mtd><mtd>{_condition(where)}</mtd></mtr>"
            for value, where in pairs
        )
        pieces = f'<mtable columnalign="left left" rowspacing="0.6em">{rows}</mtable>'
        return f'<mrow><mo stretchy="true">{{</mo>{pieces}</mrow>'
    text = print_mathml(printed, printer="presentation")
    return text.replace("&ExponentialE;", "e").replace("<mo>-</mo>", "<mo>−</mo>")


def _condition(where: Any) -> str:
    """Return where a piece holds."""
    if where == sympy.true:
        return "<mtext>otherwise</mtext>"
    return f"<mtext>if\u00a0</mtext>{mathml(where)}"


def equation(left: str, relation: str, right: Any, *, block: bool = True) -> str:
    """Return a <math> element with left, relation and right.

    Args:
        left: MathML.
        relation: one operator.
        right: a SymPy expression.
        block: whether it stands on a line of its own, at full size.
    """
    kind = ' displaystyle="true"' if block else ""
    return f"<math{kind}><mrow>{left}<mo>{relation}</mo>{mathml(right)}</mrow></math>"


def _limit(limit: Limit) -> tuple[str, str]:
    """Return where a limit is taken, and its value with the leading term, as HTML."""
    arrow = equation(mathml(limit.variable), "→", limit.point, block=False)
    if limit.condition != sympy.true:
        words = isinstance(limit.condition, str)
        told = escape(str(limit.condition)) if words else f"<math>{mathml(limit.condition)}</math>"
        arrow += f", {told}"
    # n·S² is the window of decay. A leading term is printed where it says more than the limit.
    left = _S if limit.quantity == "S" else _WINDOW
    result = equation(left, "→", limit.value, block=False)
    if limit.leading != limit.value:
        result += '<span class="asymptote">' + equation(left, "∼", limit.leading, block=False)
        result += "</span>"
    return arrow, result


def derivation(derived: Derivation) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the formulas that were derived of a kernel.

    Returns:
        (label, MathML) of the definition, the moments and S; (where, MathML) of each limit.
    """
    lines = [
        ("Weight", equation(_A, "=", derived.kernel.weight)),
        ("First moment", equation(_M1, "=", derived.first_moment)),
        ("Second moment", equation(_M2, "=", derived.second_moment)),
        ("Sparsity", equation(_S, "=", derived.S)),
    ]
    if derived.reduced is not None:
        lines.append(("In z = β/γ", equation(_S, "=", derived.reduced)))
    lines += [(case.name.capitalize(), equation(_S, "=", case.S)) for case in derived.cases]
    return lines, [_limit(limit) for limit in derived.limits]
