"""The opening of the page: who can focus, what it takes, and which claim is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import sympy

from sparsity import kernels
from sparsity.claims_ledger.findings import counted_verdicts
from sparsity.derivation import Limit, derive
from sparsity.design_search import Impossible, design
from sparsity.errors import InputError
from sparsity.kernels import Kernel, nonnegative, parameters
from sparsity.kernels.parameters import Parameter
from sparsity.report import claims as judged
from sparsity.report.parts import badge, boxes, number, percent, table

LENGTH, TOKENS = 1024, 8  # the row of the table, and how many tokens it is to attend to


def _short_meaning(parameter: Parameter) -> str:
    """Return the meaning of a parameter without its formula, such as "spread γ"."""
    name = parameter.meaning.split(" = ")[0]
    return name.removesuffix(" per token").removesuffix(" of a feature")


def _symbol(name: str) -> str:
    """Return the symbol of a parameter, which is the last word of its short meaning."""
    found = [_short_meaning(p).rsplit(" ", 1)[-1] for p in parameters.ALL if p.name == name]
    return found[0] if found else name


def _describe_approach(limit: Limit) -> str:
    """Return in words how a limit is approached, such as "larger spread γ"."""
    named = [_short_meaning(p) for p in parameters.ALL if p.symbol == limit.variable]
    name = named[0] if named else str(limit.variable)
    ways = {sympy.oo: "larger", -sympy.oo: "lower", sympy.S.Zero: "smaller"}
    way = ways.get(limit.point)
    words = f"{way} {name}" if way else f"{name} near {limit.point}"
    if limit.condition == sympy.true:
        return escape(words)
    plain = isinstance(limit.condition, str)
    where = limit.condition if plain else sympy.pretty(limit.condition, use_unicode=True)
    # A condition such as "γ > 0" is not broken between two lines.
    together = escape(where).replace(" ", "\u00a0")
    return f"{escape(words)} ({together})"


def _what_focus_takes(kernel: Kernel) -> tuple[str, bool]:
    """Return what brings a row down to `TOKENS` tokens, and whether that is impossible."""
    # Nonnegative features have no law at finite n. In long rows one feature has S² = 1/(1 + r²),
    # r = σ̃/μ̃, and n·S² = TOKENS gives r.
    if kernel is nonnegative:
        return f"σ̃/μ̃ = {number(math.sqrt(LENGTH / TOKENS - 1), 3)} (one feature, limit law)", False
    try:
        found = design(kernel, length=LENGTH, n_eff=TOKENS, lengths=[])
    except Impossible as why:
        return f"out of reach: at least {number(round(why.reach.low))} tokens", True
    except InputError:
        return "not computed", False
    # Of exp the bias is left out: softmax does not depend on it.
    held = found.row.params.items()
    given = [f"{_symbol(k)} = {number(float(v), 3)}" for k, v in held if k != found.parameter]
    at = f" at {', '.join(given)}" if given and kernel is not kernels.exp else ""
    return f"{_symbol(found.parameter)} = {number(found.value, 3)}{at}", False


def who_can_focus() -> str:
    """Return the table of kernels: whether S can fall to 0, by what, and what a row takes."""
    rows = []
    for kernel in kernels.ALL:
        limits = derive(kernel).limits
        # The limits of the derivation at which S is 0, and those at which it is 1.
        sharper, flatter = (
            [_describe_approach(x) for x in limits if x.quantity == "S" and x.value == value]
            for value in (0, 1)
        )
        takes, never = _what_focus_takes(kernel)
        # "no" needs a proof: a design found to be impossible. No limit 0 in a list is none.
        verdict = badge("yes" if sharper else "no") if sharper or never else "not decided"
        name = escape(kernel.title[:1].upper() + kernel.title[1:])
        cells = ["; ".join(moves) or "nothing" for moves in (sharper, flatter)]
        rows.append((f'<a href="#kernel-{kernel.name}">{name}</a>', verdict, *cells, takes))
    head = [
        "attention",
        "can focus",
        "sharper with",
        "flatter with",
        f"to attend to {TOKENS} of {LENGTH} tokens",
    ]
    return table(head, rows, "Who can focus", stacks=True)


def _agreement_facts(crosscheck: Any, claims: Sequence[Mapping[str, Any]]) -> str:
    """Return how theory and sampling agree, in boxes, and the verdicts on the claims, counted."""
    ledger = counted_verdicts([record["verdict"] for record in claims])
    cells = crosscheck.cells
    agreeing = sum(cell.verdict == "agree" for cell in cells)
    facts = [
        ("Theory and sampling", badge("agree" if crosscheck.agree else "disagree")),
        ("in comparisons", f"{number(agreeing)} of {number(len(cells))}"),
        ("An error this large would show", percent(crosscheck.smallest_detectable)),
        ("Chance of a false alarm", number(float(crosscheck.false_alarm_rate))),
    ]
    return f'{boxes(facts)}\n<p class="note">Of {len(claims)} published claims: {ledger}.</p>'


def opening(
    title: str, overview: str, finding: str, crosscheck: Any, claims: Sequence[Mapping[str, Any]]
) -> str:
    """Return the head of the page, with its answer before any formula.

    Args:
        title: the question.
        overview: the figure that answers it, as HTML, or nothing.
        finding: the title of that figure.
        crosscheck: the result of `verify`.
        claims: the records of `claims`.
    """
    lead = f'<p class="lead">{escape(finding)}.</p>\n' if finding else ""
    return (
        f'<header id="answer">\n<h1>{title}</h1>\n{lead}'
        "<p>S says how evenly the attention of a row is spread: 1 if every token counts the same, "
        "near 0 if a few tokens take all. A row of n tokens attends to n·S² of them. "
        f"<b>Small S is focused.</b></p>\n{overview}\n"
        f'<h2 id="who">Who can focus</h2>\n{who_can_focus()}\n{judged.refuted(claims)}\n'
        f"{_agreement_facts(crosscheck, claims)}\n</header>"
    )
