"""What there is: kernels, row maps, steps, laws of scores and quantities, from their tuples."""

import inspect

import sympy

from sparsity import kernels, quantities
from sparsity.rows import score_laws, steps

_WORDS = """# Catalogue

Everything that has a name, as the package lists it. `sparsity list` prints the kernels.
"""


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown; bars inside cells are escaped."""
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return "\n".join(f"| {line} |" for line in cells) + "\n"


def page() -> str:
    """The page in Markdown."""
    parts = [_WORDS]
    for title, words, head, rows in (_kernels(), _maps(), _steps(), _scores(), _quantities()):
        parts += [f"## {title}\n", words, table(head, rows)]
    return "\n".join(parts)


def _code(text: str) -> str:
    return f"`{text}`"


def _kernels():
    rows = [
        (
            _code(kernel.name),
            kernel.title,
            f"${sympy.latex(kernel.weight)}$",
            ", ".join(_code(p.name) for p in kernel.parameters),
            kernel.random,
        )
        for kernel in kernels.known()
    ]
    head = ("name", "title", "weight a", "parameters", "random")
    return "Kernels", "Functions of one score, of features, or of the position.\n", head, rows


def _maps():
    rows = [(_code(m.name), m.title, _code(m.formula), m.source) for m in kernels.MAPS]
    words = "Weights that depend on the whole row. They are asked with a length.\n"
    return "Row maps", words, ("name", "title", "weights", "source"), rows


def _summary(thing) -> str:
    return (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")


def _steps():
    rows = [
        (_code(step.name), f"{{py:class}}`~sparsity.{step.__name__}`", _summary(step))
        for step in steps.ALL
    ]
    words = "What changes tokens along the sequence, in the order in which it is given.\n"
    return "Steps", words, ("at the prompt", "in Python", "what it does"), rows


def _scores():
    rows = [
        (_code(law.name), f"{{py:class}}`~sparsity.{law.__name__}`", _summary(law))
        for law in score_laws.ALL
    ]
    words = "Scores are s = β + γx. x is Gaussian unless one of these is given.\n"
    return "Laws of scores", words, ("at the prompt", "in Python", "law of x"), rows


def _quantities():
    rows = [
        (_code(q.name), q.symbol, q.title, q.average, q.unit)
        for q in (*quantities.ALL, *quantities.OF_MAPS)
    ]
    for family in quantities.FAMILIES:
        q = quantities.named(f"{family.name}:{family.example}")
        rows.append((_code(f"{family.name}:{family.symbol}"), q.symbol, q.title, q.average, q.unit))
    words = "What can be asked of a row, by `of=` and `--of`. Of a family one member is shown.\n"
    return "Quantities", words, ("name", "symbol", "title", "what is averaged", "unit"), rows
