"""Measure SmolLM2 and judge its rows and heads: `python -m experiments.real_heads [--out DIR]`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.figure import Figure

from experiments.real_heads import heads, parts, rows
from experiments.real_heads.constants import EVERY_ROW, HeadRows, fit_kappa, log_law_held_back
from experiments.real_heads.rows import Claim, Law
from experiments.real_model import SMOLLM2, open_model, text_of
from sparsity import InputError
from sparsity.attention.measurement import row_laws, tables
from sparsity.output import folder, write

TEXTS = ("types", "formatstrings", "debugger", "specialnames", "execmodel", "import", "strings")
TOKENS = 512
BINS = 40  # of the rows by rank: more make the curves noisy, fewer hide the ends

PAGE = """# The rows and heads of SmolLM2-135M-Instruct

`python -m experiments.real_heads`, on the first {tokens} tokens of {count} pages of Python's
documentation.

## By context length

{table}

Rows T/2 < n ≤ T of all layers, heads and texts; without sinks (keys that take more than 0.1 of a
head's weight) from "no sinks" to "rank ex".

## Laws of a row without its sinks

{laws}

κ of the heads: {kappa} at quantiles 5, 50 and 95 %. Beside Gaussian rows of the same n and γ̂ the
exact law has a median of {ideal.ratio:.3f} and {ideal.within:.1%} within a quarter, and given the
largest logit {given.ratio:.3f} and {given.within:.1%}.

![Measured S over the laws, against its rank](real_heads.png)

## Why real rows miss the exact law

{left}

Median of S over the exact law, each at its own n and γ̂; rows without their first key alone.

## Claims

{claims}
"""


def laws_of(data: xarray.Dataset) -> tuple[HeadRows, dict[str, np.ndarray]]:
    """Return rows of the second half, and the logs of three laws of each."""
    last = int(data["context"][-1])
    late = tables.rows_at(data, last).isel(row=slice(EVERY_ROW - 1, None, EVERY_ROW))
    found = HeadRows.of(late)
    exact = np.log(row_laws.exact_law(found.length, found.gamma))
    return found, {
        "exact law, of n and γ̂": exact,
        "given the largest logit, nothing fitted": found.log_law(),
        "and κ of each head, from all other texts": log_law_held_back(found),
    }


def draw(S: np.ndarray, laws: Mapping[str, np.ndarray]) -> bytes:
    """Draw S over each law against the rank of S: median and middle half of each fortieth."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    ax = figure.subplots()
    known = np.isfinite([S, *laws.values()]).all(0)
    order = np.argsort(S[known], kind="stable")
    at = (np.arange(BINS) + 0.5) / BINS
    for i, (name, law) in enumerate(laws.items()):
        ratio = np.exp(np.log(S[known]) - law[known])[order]
        quarters = [np.quantile(x, (0.25, 0.5, 0.75)) for x in np.array_split(ratio, BINS)]
        low, middle, high = np.transpose(quarters)
        ax.fill_between(at, low, high, color=f"C{i}", alpha=0.15, lw=0)
        ax.plot(at, middle, color=f"C{i}", label=name)
    ax.axhline(1, color="0.6", lw=0.8)
    ax.set(xlim=(0, 1), yscale="log", ylim=(0.3, 2.2), ylabel="measured S over the law")
    ax.set(xlabel="rank of the row's S among all rows", title="A row given its largest logit")
    ax.legend(frameon=False, loc="lower right")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    written = (f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines))
    return "\n".join(written)


def listed_claims(claims: Sequence[Claim]) -> str:
    """Return each claim with its verdict and its findings."""
    lines = []
    for claim in claims:
        lines.append(f"- **{claim.verdict}**: {claim.statement}")
        lines += [
            f"  - {x.role}, {'holds' if x.holds else 'FAILS'}: {x.statement}"
            for x in claim.findings
        ]
    return "\n".join(lines)


def page_of(data: xarray.Dataset, evidence: heads.Evidence, claims: Sequence[Claim]) -> str:
    """Return the page."""
    found, laws = laws_of(data)
    fits = {name: Law.of(found.S, law) for name, law in laws.items()}
    form = ((".3f", "ratio"), (".3f", "rank"), (".1%", "within"))
    real, ideal = evidence.real.ratios, evidence.ideal.ratios
    shown: dict[str, Any] = {
        "tokens": data.sizes["row"], "count": data.sizes["text"],
        "ideal": evidence.ideal.exact, "given": evidence.ideal.given,
    }  # fmt: skip
    return PAGE.format(
        **shown,
        table=f"```\n{tables.text(tables.summary(data))}\n```",
        laws=table(
            ("law", "median S/law", "rank of rows", "within a quarter"),
            [(name, *(f"{getattr(fit, x):{f}}" for f, x in form)) for name, fit in fits.items()],
        ),
        kappa=", ".join(f"{x:.3f}" for x in np.nanquantile(fit_kappa(found), (0.05, 0.5, 0.95))),
        left=table(
            ("row", "real", "Gaussian"),
            [(x, f"{real[x]:.3f}", f"{ideal[x]:.3f}" if x in ideal else "") for x in real],
        ),
        claims=listed_claims(claims),
    )


def main() -> None:
    """Measure, judge and write real_heads.md and .png."""
    parser = argparse.ArgumentParser(prog="python -m experiments.real_heads", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/experiments"))
    home = folder(parser.parse_args().out)
    model, texts = open_model(SMOLLM2), {name: text_of(name) for name in TEXTS}
    data = rows.measure_texts(model, texts, TOKENS)
    evidence = heads.Evidence.of(parts.measure_heads(model, texts, tokens=TOKENS))
    claims = [*rows.judge(rows.Rows.of(data)), *heads.judge(evidence)]
    found, laws = laws_of(data)
    write(home / "real_heads.png", draw(found.S, laws))
    write(home / "real_heads.md", page_of(data, evidence, claims))
    print(home / "real_heads.md")  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except InputError as error:  # no folder, or a model that is not there
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(2)
