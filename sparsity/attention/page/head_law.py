"""The page's section on the law of a real head."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from sparsity.attention.claims.head_table import head_table
from sparsity.report.parts import number, section, table

if TYPE_CHECKING:
    import xarray

TITLE = "The law of a real head"
_SHORT = {
    "S_exact_without_sinks": "exact law",
    "S_given_without_sinks": "given the largest logit",
    "S_head_without_sinks": "with κ",
}


def _line(name: str, found: Mapping[str, Any]) -> list[str]:
    heads = f"{found['heads']:.3f}" if "heads" in found else ""
    cells = [f"{found['ratio']:.3f}", f"{found['rank']:.3f}", heads, f"{found['within']:.1%}"]
    return [name, *cells, number(found["rows"])]


def section_of(data: xarray.Dataset) -> str:
    """The three laws on texts held back, Gaussian rows beside them, and each text."""
    found = head_table(data)
    kappa = found["kappa"]
    head = ["law", "median S/law", "rank of rows", "of heads", "within a quarter", "rows"]
    lines = [_line(_SHORT[name], x) for name, x in found["laws"].items()]
    lines += [_line(f"Gaussian: {_SHORT[name]}", x) for name, x in found["gaussian"].items()]
    texts = [
        [escape(text), *(f"{x['texts'][i]:.3f}" for x in found["laws"].values())]
        for i, text in enumerate(found["texts"])
    ]
    low, middle, high = kappa["quantiles"]
    words = (
        "<p>The exact law knows the length n of a row and the spread γ̂ of its logits. Real rows "
        "have a heavier upper tail. Given the row's largest logit as well, with all others "
        "Gaussian below it, n·S² = [1 + (n − 1)r₁]²/[1 + (n − 1)r₂] with r<sub>k</sub> = "
        "R(kγ − ζ)/R(−ζ), ζ = (s<sub>max</sub> − β̂)/γ and Mills’ ratio R(x) = (1 − Φ(x))/φ(x). "
        "One constant κ of each head, γ = κγ̂, is fitted on texts and judged on others: the last "
        "law below has never seen the text it is compared with. Gaussian: rows drawn at the same n "
        "and γ̂. Without sinks; every eighth row of the second half.</p>"
    )
    note = (
        f'<p class="note">κ of {number(kappa["heads"])} heads: {low:.2f}, {middle:.2f}, {high:.2f} '
        f"at quantiles 5, 50 and 95 %; standard error {number(kappa['stderr'], 2)} in the median "
        f"head, from {number(kappa['texts'])} texts drawn with replacement ({kappa['resamples']} "
        f"draws, seed {kappa['seed']}). The largest logit alone says most of a row's S: this is a "
        "law given the maximum, no prediction from the spread.</p>"
    )
    titles = ["median S/law", *_SHORT.values()]
    by_text = table(titles, texts, "By text", [1, 2, 3])
    return section(
        "head-law", TITLE, words + table(head, lines, TITLE, list(range(1, 6))) + note + by_text
    )
