"""The page of a measured model: what was found, pictures, claims, and how to get it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import report
from sparsity.attention.measurement import tables
from sparsity.attention.page import by_text, head_law
from sparsity.figures.record import Plate
from sparsity.report.parts import boxes, details, number, section, table

if TYPE_CHECKING:
    import xarray

_ODD = 20  # heads listed that the Gaussian law describes least


def _opening(data: xarray.Dataset, rows: Sequence[Mapping[str, Any]]) -> str:
    last = next(row for row in reversed(rows) if row["bos"] == rows[0]["bos"])
    facts = [
        ("Tokens attended to, of " + number(last["T"]), number(last["n_eff"], 3)),
        ("without sinks", number(last["n_eff_without_sinks"], 3)),
        ("S over the limit law", number(last["ratio_limit_without_sinks"], 3)),
        ("S over the exact law", number(last["ratio_exact_without_sinks"], 3)),
    ]
    model = escape(str(data.attrs["model"]))
    return (
        f'<header>\n<h1>The attention of {model}</h1>\n<p class="lead">Every row of every head, '
        "beside what theory says of Gaussian logits.</p>\n"
        "<p>A row of n weights has sparsity S = ‖a‖₁/(√n‖a‖₂) and attends to n·S² tokens. From its "
        "queries and keys come the spread γ̂ of its logits, and from γ̂ two predictions: the limit "
        "law S = exp(−γ̂²/2), and the exact law of n Gaussian logits. Nothing is fitted.</p>\n"
        f"{boxes(facts)}\n"
        '<p class="note">Medians over the rows in the second half of the longest context, all '
        "layers, heads and texts; the laws are compared with rows without their sinks: all keys "
        "that take more than 0.1 of a head's weight on average, wherever they are.</p>\n"
        "</header>"
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    begins = {True: "yes", False: "no", None: "not said"}

    def part(columns: Sequence[tuple[str, str, str, str]], label: str) -> str:
        cells = [
            [begins[row["bos"]], *(f"{row[key]:{form}}" for key, *_, form in columns)]
            for row in rows
        ]
        titles = ["BOS", *(escape(title) for _, _, title, _ in columns)]
        return table(titles, cells, label, list(range(1, len(titles))))

    words = (
        "<p>At context length T: all rows with T/2 &lt; n ≤ T. The number of tokens n_eff, γ̂ and "
        "the ratios of S to its law are medians; rank correlations are Spearman’s, over rows. From "
        "“without sinks” on, all sinks are left out; sinks &gt; 0.3: heads in which all sinks "
        "together have more than 0.3 of the weight of these rows.</p>"
    )
    first = (
        "<p>The first token alone. Published: heads in which its mean weight over all rows up to T "
        "exceeds ε, the early rows too; late rows: over T/2 &lt; n ≤ T, ε = 0.3; S/exact without: "
        "of rows without it alone.</p>"
    )
    more = [c for c in tables.columns_of(rows[0]) if c not in tables.COLUMNS]
    content = words + part(tables.COLUMNS, "By context length") + first
    content += part([tables.COLUMNS[0], *more], "The first token and whole rows")
    return section("table", "By context length", content)


def _odd_heads(data: xarray.Dataset) -> str:
    """The heads that the Gaussian law does not describe."""
    here = data.isel(bos=0)
    rows = tables.rows_at(here, int(here["context"][-1]))
    departs = here["departs"].mean("text").values
    names = ("residual_exact", "skew", "kurtosis", "distance", "gamma")
    names = [f"{name}_without_sinks" for name in names]
    found = {name: rows[name].median(("text", "row")).values for name in names}
    order = np.argsort(-departs, axis=None)[:_ODD]
    cells = []
    for flat in order:
        at = np.unravel_index(flat, departs.shape)
        values = [departs[at], np.exp(found[names[0]][at]), *(found[n][at] for n in names[1:])]
        cells.append([*(str(int(i)) for i in at), *(number(float(v), 3) for v in values)])
    head = ["layer", "head", "rows that depart", "S/exact", "skew", "kurtosis", "distance", "γ̂"]
    share = 100 * float((departs > 0.5).mean())
    words = (
        f"<p>In {share:.0f} % of the heads most rows are told from a Gaussian by Lilliefors’ test "
        "at 1 % (logits without the sinks). These depart most often; medians over rows.</p>"
    )
    listed = table(head, cells, "Heads that depart from the Gaussian", list(range(8)))
    content = words + details(f"The {len(cells)} heads", listed)
    return section("heads", "Heads that are not Gaussian", content)


def _again(data: xarray.Dataset, meta: Mapping[str, Any], command: str) -> str:
    keys = [key for key in ("model", "model_sha256", "tokens") if key in data.attrs]
    rows = [(key.replace("_", " "), escape(str(data.attrs[key]))) for key in keys]
    rows += [(escape(str(name)), escape(str(value))) for name, value in meta.items()]
    content = f"<pre><code>{escape(command)}</code></pre>\n" + report.terms(rows)
    return section("reproduce", "How to reproduce", content)


def render(
    data: xarray.Dataset,
    plates: Sequence[Plate],
    claims: Sequence[Mapping[str, Any]],
    meta: Mapping[str, Any],
    command: str,
) -> str:
    """The page as HTML: no script, and nothing is fetched from anywhere.

    Args:
        data: over text and bos, as `measure_model` has it.
        plates: the pictures.
        claims: the judged claims.
        meta: versions and device, by name.
        command: that computes everything again.
    """
    rows = tables.summary(data)
    law = head_law.section_of(data) if "S_head_without_sinks" in data else ""
    contents = [
        ("table", "By context length", []),
        ("texts", "By text", []),
        ("figures", "Figures", [(f"figure-{plate.name}", plate.title) for plate in plates]),
        *([("head-law", head_law.TITLE, [])] if law else []),
        ("heads", "Heads that are not Gaussian", []),
        ("claims", "Claims", report.claim_links(claims)),
        ("reproduce", "How to reproduce", []),
    ]
    body = [
        _opening(data, rows),
        report.contents_list(contents),
        _table(rows),
        by_text.section_of(data),
        report.figures_section(plates),
        law,
        _odd_heads(data),
        report.claims_section(claims),
        _again(data, meta, command),
    ]
    return report.document(f"The attention of {data.attrs['model']}", "\n".join(body))
