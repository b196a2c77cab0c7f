"""The report: one self-contained page with every figure, formula, comparison and claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

from sparsity import kernels
from sparsity.report import comparison, formulas, parts
from sparsity.report.parts import badge, details, number, percent, prose, section, table
from sparsity.symbolic import derive

if TYPE_CHECKING:
    from sparsity.figures import Plate

__all__ = [
    "claims_section",
    "contents_list",
    "document",
    "environment",
    "figures_section",
    "render",
    "terms",
    "version",
]

_TITLE = "How sharply can attention focus?"


def version(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(seed: int = 0) -> dict[str, str]:
    """Versions, device and seed: what a reader needs to get the same numbers."""
    import platform

    import jax

    device = jax.devices()[0]
    names = ("sparsity", "jax", "numpy", "scipy", "sympy", "matplotlib")
    return {
        "python": platform.python_version(),
        **{name: version(name) or "not installed" for name in names},
        "device": f"{jax.device_count()} × {device.platform} ({device.device_kind})",
        "seed": str(seed),
    }


def render(
    figures: Sequence[Plate],
    crosscheck: Any,
    claims: Sequence[Mapping[str, Any]],
    meta: Mapping[str, Any],
) -> str:
    """The page as HTML: no script, and nothing is fetched from anywhere.

    Args:
        figures: the figures, in order.
        crosscheck: the result of `verify`.
        claims: the records of `claims`.
        meta: what to state about the run, by name; see `environment`.

    Returns:
        The document; the same arguments give the same text.
    """
    figure_links = [(f"figure-{plate.name}", plate.title) for plate in figures]
    kernel_links = [(f"kernel-{kernel.name}", _capital(kernel.title)) for kernel in kernels.ALL]
    contents = [
        ("figures", "Figures", figure_links),
        ("formulas", "Formulas", kernel_links),
        ("cross-check", "Cross-check", []),
        ("claims", "Claims", []),
        ("reproduce", "How to reproduce", []),
    ]
    body = [
        _opening(crosscheck, claims),
        contents_list(contents),
        figures_section(figures),
        _formulas(),
        comparison.section_of(crosscheck),
        claims_section(claims),
        _reproduce(meta),
    ]
    return document(_TITLE, "\n".join(body))


def document(title: str, body: str) -> str:
    """A whole page in the one style, from its title and HTML: no script, and nothing is fetched."""
    style = resources.files("sparsity.report").joinpath("style.css").read_text("utf-8")
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _capital(title: str) -> str:
    return escape(title[:1].upper() + title[1:])


def _opening(crosscheck: Any, claims: Sequence[Mapping[str, Any]]) -> str:
    verdicts = Counter(record["verdict"] for record in claims)
    ledger = ", ".join(f"{verdicts[v]} {v}" for v in ("confirmed", "refined", "refuted"))
    facts = [
        ("Cross-check", badge("agree" if crosscheck.agree else "disagree")),
        ("Cells", number(len(crosscheck.cells))),
        ("Smallest detectable error", percent(crosscheck.smallest_detectable)),
        ("False-alarm rate", number(float(crosscheck.false_alarm_rate))),
    ]
    symbol = '<mi mathvariant="normal">E</mi>'
    metric = (
        f'<math display="block"><mi>S</mi><mo>=</mo><mfrac><mrow>{symbol}'
        "<mo>|</mo><mi>a</mi><mo>|</mo></mrow>"
        f"<msqrt>{symbol}<msup><mi>a</mi><mn>2</mn></msup></msqrt></mfrac></math>"
    )
    return (
        f'<header>\n<h1>{_TITLE}</h1>\n<p class="lead">Attention kernels, derived, evaluated, '
        f"estimated and compared.</p>\n<p>The sparsity of attention weights <i>a</i> is</p>{metric}"
        "<p>between 0 and 1: small is focused, 1 is uniform. Scores are Gaussian, with bias "
        "β = <i>q</i>·μ and spread γ = σ‖<i>q</i>‖. Each kernel is one definition; a symbolic "
        "derivation, quadrature and Monte Carlo each start from it alone, and the stable closed "
        "forms are held against all three.</p>\n"
        f"{parts.boxes(facts)}\n"
        f'<p class="note">Of the {len(claims)} claims examined: {ledger}.</p>\n</header>'
    )


def contents_list(contents: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> str:
    """Links to the parts: (name, title, the same of its parts)."""

    def link(name: str, title: str) -> str:
        return f'<a href="#{name}">{escape(title)}</a>'

    items = []
    for name, title, children in contents:
        inner = "".join(f"<li>{link(*child)}</li>" for child in children)
        items.append(f"<li>{link(name, title)}{f'<ol>{inner}</ol>' if inner else ''}</li>")
    return f'<nav aria-label="Contents">\n<ol>{"".join(items)}</ol>\n</nav>'


def figures_section(figures: Sequence[Plate]) -> str:
    """The figures with captions and data."""
    out = []
    for count, plate in enumerate(figures, 1):
        data = parts.data_link(f"{plate.name}.csv", plate.files["csv"], "text/csv", "data (CSV)")
        drawing = parts.inline_svg(plate.files["svg"].decode(), f"svg-{plate.name}", plate.alt)
        out.append(
            f'<figure id="figure-{plate.name}">\n<h3>Figure {count}'
            f'<span class="hidden">: {escape(plate.title)}</span></h3>\n'
            f'<div class="plate" role="region" tabindex="0" aria-label="Figure {count}">'
            f"{drawing}</div>\n<figcaption>{escape(plate.caption)}</figcaption>\n"
            f'<p class="files">Save the {data}; the figure lies beside this page as '
            f"<code>{plate.name}.svg</code> and <code>{plate.name}.png</code>.</p>\n</figure>"
        )
    return section("figures", "Figures", "\n".join(out))


def _formulas() -> str:
    out = [
        "<p>Each result is derived from the definition of the weight <i>a</i> alone; an arrow "
        "marks a limit, ∼ the leading term.</p>"
    ]
    for kernel in kernels.ALL:
        derived = derive(kernel)
        lines, limits = formulas.derivation(derived)
        assumed = "; ".join(derived.assumptions)
        out.append(
            f'<h3 id="kernel-{kernel.name}">{_capital(kernel.title)}</h3>\n'
            f'<p class="note"><code>{kernel.name}</code> · {escape(assumed)} · '
            f"{escape(kernel.source)}</p>\n"
            f"{terms(lines)}"
        )
        if limits:
            inner = table(["As", "Limit and leading term"], limits, f"Limits of {kernel.title}")
            out.append(f'<div class="limits">{inner}</div>')
    return section("formulas", "Formulas", "\n".join(out))


def claims_section(claims: Sequence[Mapping[str, Any]]) -> str:
    """The judged claims: a table of verdicts, then each with its findings and numbers."""
    summary = table(
        ["", "claim", "verdict"],
        [
            (str(i), f'<a href="#claim-{i}">{prose(r["claim"])}</a>', badge(r["verdict"]))
            for i, r in enumerate(claims, 1)
        ],
        "Claims and verdicts",
    )
    out = [summary]
    if claims:
        out.append(f'<p class="note">A claim is {escape(claims[0]["evidence"]["rule"])}</p>')
    for i, record in enumerate(claims, 1):
        found = record["evidence"]
        claimed = [f for f in found["findings"] if f["role"] != "instead"]
        instead = [f for f in found["findings"] if f["role"] == "instead"]
        findings = f"<h4>Claimed</h4>{_findings(claimed)}"
        if instead:
            findings += f"<h4>Besides, or instead</h4>{_findings(instead)}"
        proof = f"<h4>Why</h4><p>{prose(found['proof'])}</p>" if found["proof"] else ""
        out.append(
            f'<article class="claim" id="claim-{i}">\n<h3><span class="text">{i}. '
            f"{prose(record['claim'])}</span> {badge(record['verdict'])}</h3>\n"
            f'<p class="formula">{prose(record["formula"])}</p>\n{findings}\n{proof}\n'
            f"{details('Numbers', parts.evidence(found['numbers'], f'claim {i}'))}\n"
            f'<p class="note">{escape(record["source"])}</p>\n</article>'
        )
    return section("claims", "Claims", "\n".join(out))


def _findings(findings: Sequence[Mapping[str, Any]]) -> str:
    items = (
        f"<li>{badge('holds' if f['holds'] else 'fails')} <span>{prose(f['statement'])}</span></li>"
        for f in findings
    )
    return f'<ul class="findings">{"".join(items)}</ul>'


def terms(rows: Sequence[tuple[str, str]]) -> str:
    """Names and what they stand for, both HTML."""
    return '<dl class="lines">' + "".join(f"<dt>{a}</dt><dd>{b}</dd>" for a, b in rows) + "</dl>"


def _reproduce(meta: Mapping[str, Any]) -> str:
    seed = escape(str(meta.get("seed", 0)))
    rows = [(escape(str(name)), escape(str(value))) for name, value in meta.items()]
    content = (
        "<p>With the package installed, this command computes everything on this page again:</p>\n"
        f"<pre><code>sparsity reproduce --seed {seed}</code></pre>\n"
        "<p>The same seed on the same device gives the same numbers. The claims alone: "
        "<code>sparsity claims</code>; the cross-check alone: <code>sparsity verify</code>.</p>\n"
    )
    return section("reproduce", "How to reproduce", content + terms(rows))
