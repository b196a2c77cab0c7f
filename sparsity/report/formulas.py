"""SymPy expressions as MathML, which browsers typeset without any script or font to load."""

from __future__ import annotations

from html import escape
from typing import Any

import sympy
from sympy.printing.mathml import MathMLPresentationPrinter

from sparsity.derivation import Derivation, Limit


class _E(sympy.Function):
    """e^x as a function of its own, which SymPy's printers do not move under a fraction bar."""


class _Printer(MathMLPresentationPrinter):
    """SymPy's printer, with its gaps filled: pieces in a column, plain indices, an upright e."""

    # SymPy builds a DOM with `xml.dom.minidom`, whose elements take children one by one.
    def _node(self, tag: str, *children: Any, text: str = "", **attributes: str) -> Any:
        node = self.dom.createElement(tag)
        for name, value in attributes.items():
            node.setAttribute(name, value)
        if text:
            node.appendChild(self.dom.createTextNode(text))
        for child in children:
            node.appendChild(child)
        return node

    # SymPy's printer has no `Idx` and no `Piecewise`, and fences several indices.
    def _print_Idx(self, e: Any) -> Any:
        return self._node("mi", text=str(e.label))

    def _print_Indexed(self, e: Any) -> Any:
        indices = self._node("mrow", *map(self._print, e.indices))
        return self._node("msub", self._print(e.base.label), indices)

    def _print__E(self, e: Any) -> Any:
        exponent = e.args[0]
        above, below = sympy.fraction(exponent)
        if below == 1 or above.is_Add:
            power = self._print(exponent)
        else:  # a small fraction is hard to read up there: write it on one line
            below = self._print(below) if below.is_Atom else self._between("()", self._print(below))
            power = self._node("mrow", self._print(above), self._node("mo", text="/"), below)
        return self._node("msup", self._node("mi", text="e"), power)

    def _between(self, fences: str, inner: Any) -> Any:
        left, right = (self._node("mo", text=fence) for fence in fences)
        return self._node("mrow", left, inner, right)

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        """Return terms with a minus sign last: 1 − x rather than −x + 1."""
        terms = super()._as_ordered_terms(expr, order=order)
        return sorted(terms, key=lambda term: term.could_extract_minus_sign())

    def _print_Piecewise(self, e: Any) -> Any:
        rows = []
        for value, condition in e.args:
            words = [self._node("mtext", text="otherwise")]
            if condition != sympy.true:
                words = [self._node("mtext", text="if\u00a0"), self._print(condition)]
            cells = (self._print(value), self._node("mrow", *words))
            rows.append(self._node("mtr", *(self._node("mtd", cell) for cell in cells)))
        table = self._node("mtable", *rows, columnalign="left left", rowspacing="0.6em")
        return self._node("mrow", self._node("mo", text="{", stretchy="true"), table)


def mathml(expression: Any) -> str:
    """Return the inside of a <math> element for a SymPy expression."""
    plain = sympy.sympify(expression).replace(sympy.exp, _E)
    # HTML has no entity InvisibleTimes, only XML with MathML's DTD; and a minus is no hyphen.
    text = _Printer().doprint(plain).replace("&InvisibleTimes;", "\u2062")
    return text.replace("<mo>-</mo>", "<mo>−</mo>")


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


_S = "<mi>S</mi>"
_A = "<mi>a</mi>"
_E_OF = '<mi mathvariant="normal">E</mi><mspace width="0.17em"></mspace>'
_BAR = '<mo stretchy="false" lspace="0" rspace="0">|</mo>'
_M1 = f"{_E_OF}{_BAR}{_A}{_BAR}"
_M2 = f"{_E_OF}<msup>{_A}<mn>2</mn></msup>"
_WINDOW = f"<mi>n</mi><msup>{_S}<mn>2</mn></msup>"
_RATIO = f"<mfrac><mrow>{_M1}</mrow><msqrt>{_M2}</msqrt></mfrac>"
METRIC = f'<math display="block">{_S}<mo>=</mo>{_RATIO}</math>'


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
