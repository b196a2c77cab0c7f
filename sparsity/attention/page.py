"""The page of a measurement: its tables, the laws of its heads, its figures and its claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import report
from sparsity.attention.claims import CLAIMS
from sparsity.attention.claims.head_evidence import head_table
from sparsity.attention.claims.heads import HEAD_CLAIMS
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.texts import texts_of_windows
from sparsity.figures.figure import Plate
from sparsity.report.parts import boxes, details, number, section, table

if TYPE_CHECKING:
    import xarray


MAX_SINKS_SHOWN = 3  # of a text beside its figures; all are in the list below
COLUMNS = (  # of `tables.summarise_context` and the loss: key, title, format
    ("loss", "loss, nats", ".3f"),
    ("n_eff", "n_eff", ".2f"),
    ("n_eff_without_sinks", "without sinks", ".2f"),
    ("ratio_exact_without_sinks", "S/exact", ".3f"),
    ("sinks_rate_0.3", "sinks > 0.3", ".1%"),
    ("late_rate_0.3", "first token", ".1%"),
    ("sink_rate_0.3", "published", ".1%"),
    ("ratio_exact_without_sink_key", "S/exact", ".3f"),
)


def _list_sinks(data: xarray.Dataset) -> list[list[dict[str, Any]]]:
    """Return the sinks of each text, in the first way of running it, those of most heads first."""
    found = []
    for i in range(data.sizes["text"]):
        run = data.isel(text=i, bos=0)
        words = [str(x) for x in run["token"].values] if "token" in run else [""] * run.sizes["key"]
        listed = sinks.list_sinks(run["key_importance"].values, words)
        found.append(sorted(listed, key=lambda sink: -sink["heads"]))
    return found


def _label_sink(sink: dict[str, Any]) -> str:
    word = f" “{escape(sinks.spell_token(sink['token']))}”" if sink["token"] else ""
    return f"{sink['position']}{word}"


def _texts_section(data: xarray.Dataset) -> str:
    """Lay out each text at the longest context, the mean with its interval, and the sinks."""
    texts = tables.by_text(data)
    columns = [column for column in COLUMNS if column[0] in texts[0]]
    listed = _list_sinks(data)
    cells, places = [], []
    for row, own in zip(texts, listed, strict=True):
        few = ", ".join(f"{_label_sink(x)} ({x['heads']})" for x in own[:MAX_SINKS_SHOWN]) or "none"
        more = f", {len(own) - MAX_SINKS_SHOWN} more" if len(own) > MAX_SINKS_SHOWN else ""
        values = [f"{row[key]:{form}}" for key, _, form in columns]
        cells.append([escape(row["text"]), *values])
        places.append([escape(row["text"]), few + more])
    names = texts_of_windows([row["text"] for row in texts], data.attrs.get("stride"))
    # The interval is over texts, not windows: windows of one text are alike.
    means = tables.bootstrap_over_texts(texts, [key for key, *_ in columns], names)
    cells.append(["mean", *(f"{means[key]['value']:{form}}" for key, _, form in columns)])
    if len(set(names)) > 1:  # of one text there is no interval over texts
        for i, word in enumerate(("95 % from", "to")):
            ends = [f"{means[key]['ci95'][i]:{form}}" for key, _, form in columns]
            cells.append([word, *ends])
    head = ["text", *(title for _, title, _ in columns)]
    T = int(data["context"][-1])
    words = (
        f"<p>Rows T/2 &lt; n ≤ T = {number(T)}, the first way of running each text. Medians over "
        "rows, and shares of heads, as above; S/exact first without all sinks, last without the "
        "first token alone. The interval is that of the mean over other such texts "
        f"({means['n_eff']['method']}); windows of one text are drawn together.</p>"
    )
    every = [
        [escape(row["text"]), str(x["position"]), escape(sinks.spell_token(x["token"])),
         str(x["heads"]), number(x["importance"], 3)]
        for row, own in zip(texts, listed, strict=True) for x in own
    ]  # fmt: skip
    titles = ["text", "position", "token", "heads", "mean weight there"]
    # The list may have thousands of lines: its box scrolls down, where others scroll sideways.
    whole = table(titles, every, "All sinks", [1, 3, 4]).replace("scroll", "scroll tall", 1)
    content = words + table(head, cells, "By text", list(range(1, len(head))))
    content += table(["text", "sinks: position, token (heads)"], places, "Sinks by text")
    return section("texts", "By text", content + details(f"All {len(every)} sinks", whole))


HEAD_LAW_TITLE = "The law of a real head"
_SHORT = {  # the laws of `LAWS` in words short enough for a table's first column
    "S_exact_without_sinks": "exact law",
    "S_given_without_sinks": "given the largest logit",
    "S_head_without_sinks": "with κ",
}


def _law_line(name: str, found: Mapping[str, Any]) -> list[str]:
    heads = f"{found['heads']:.3f}" if "heads" in found else ""
    cells = [f"{found['ratio']:.3f}", f"{found['rank']:.3f}", heads, f"{found['within']:.1%}"]
    return [name, *cells, number(found["rows"])]


def _head_law_section(data: xarray.Dataset) -> str:
    """Lay out the three laws on texts held back, Gaussian rows beside them, and each text.

    The Gaussian rows are the control: there the exact law is right by construction, so that they
    show what the laws are off by when nothing is wrong.
    """
    found = head_table(data)
    kappa = found["kappa"]
    head = ["law", "median S/law", "rank of rows", "of heads", "within a quarter", "rows"]
    lines = [_law_line(_SHORT[name], x) for name, x in found["laws"].items()]
    lines += [_law_line(f"Gaussian: {_SHORT[name]}", x) for name, x in found["gaussian"].items()]
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
    # Text by text the ratio shows whether the law holds everywhere or on average only.
    titles = ["median S/law", *_SHORT.values()]
    by_text = table(titles, texts, "By text", [1, 2, 3])
    return section(
        "head-law",
        HEAD_LAW_TITLE,
        words + table(head, lines, HEAD_LAW_TITLE, list(range(1, 6))) + note + by_text,
    )


MAX_HEADS_SHOWN = 20  # of those that the Gaussian law describes least


def _opening(data: xarray.Dataset, rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the title, the quantities in words, and the four figures to begin with."""
    # Rows come by way of beginning, then by context: the last of the first way is the longest one.
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


def _table_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lay out `tables.summary`: rows without their sinks, then the first token and whole rows."""
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
    # What was asked for by `of` stands with the first token's columns: the first table is as wide
    # as a page already.
    more = [c for c in tables.columns_of(rows[0]) if c not in tables.COLUMNS]
    content = words + part(tables.COLUMNS, "By context length") + first
    content += part([tables.COLUMNS[0], *more], "The first token and whole rows")
    return section("table", "By context length", content)


def _heads_section(data: xarray.Dataset) -> str:
    """List the heads that the Gaussian law does not describe."""
    here = data.isel(bos=0)
    rows = tables.rows_at(here, int(here["context"][-1]))
    # The order is by the share of rows that fail the test, not by its distance, which depends on n.
    departs = here["departs"].mean("text").values
    names = ("residual_exact", "skew", "kurtosis", "distance", "gamma")
    names = [f"{name}_without_sinks" for name in names]
    found = {name: rows[name].median(("text", "row")).values for name in names}
    order = np.argsort(-departs, axis=None)[:MAX_HEADS_SHOWN]
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


def _reproduce_section(data: xarray.Dataset, meta: Mapping[str, Any], command: str) -> str:
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
    """Return the page as HTML: no script, and nothing is fetched from anywhere.

    Args:
        data: over text and bos, as `measure_model` has it.
        plates: the pictures.
        claims: the judged claims.
        meta: versions and device, by name.
        command: the command that computes everything again.
    """
    # Sections that a measurement has no variables for are left out, in the list of contents too.
    rows = tables.summary(data)
    law = _head_law_section(data) if "S_head_without_sinks" in data else ""
    contents = [
        ("table", "By context length", []),
        ("texts", "By text", []),
        ("figures", "Figures", [(f"figure-{plate.name}", plate.title) for plate in plates]),
        *([("head-law", HEAD_LAW_TITLE, [])] if law else []),
        ("heads", "Heads that are not Gaussian", []),
        ("claims", "Claims", report.claim_links(claims)),
        ("reproduce", "How to reproduce", []),
    ]
    body = [
        _opening(data, rows),
        report.contents_list(contents),
        _table_section(rows),
        _texts_section(data),
        report.figures_section(plates),
        law,
        _heads_section(data),
        report.claims_section(claims, (*CLAIMS, *HEAD_CLAIMS)),
        _reproduce_section(data, meta, command),
    ]
    return report.document(f"The attention of {data.attrs['model']}", "\n".join(body))
