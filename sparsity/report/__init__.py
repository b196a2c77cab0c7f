"""The report: one self-contained page that opens with the answer and keeps all the evidence.

figures, verify, claims ── reproduction (writes the files, and the page again from them)
     └── render: answer · figures · formulas · comparison · claims
                  all of them made of parts: tables, badges, numbers, inline drawings

The same run gives the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

from sparsity import claims_ledger as ledger
from sparsity import kernels
from sparsity.derivation import derive
from sparsity.report import answer, comparison, formulas, parts
from sparsity.report import claims as judged
from sparsity.report.claims import links as claim_links
from sparsity.report.claims import section_of as claims_section
from sparsity.report.parts import inline_svg, prose, section, table

if TYPE_CHECKING:
    from sparsity.figures import Plate

__all__ = [
    "claim_links",
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
_OVERVIEW = "overview"
_SLIDERS = (
    '<p class="note">With sliders for β, γ, n, d and λ: <a href="explore.html">explore.html</a>, '
    "a page of its own beside this one.</p>"
)
# Characters of a formula beyond which it no longer fits 368 pixels, the width of a phone, at full
# size.
_WIDE = 48


def version(package: str) -> str | None:
    """Return the version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def environment(seed: int = 0) -> dict[str, str]:
    """Return versions, device and seed, which a reader needs to get the same numbers."""
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
    """Return the page as HTML, with nothing fetched from elsewhere; its one script shows values.

    Args:
        figures: the figures, in order; the one named "overview" comes first.
        crosscheck: the result of `verify`.
        claims: the records of `claims`.
        meta: what to state about the run, by name; see `environment`.

    Returns:
        The document; the same arguments give the same text.
    """
    # The overview answers the question of the title, so that it opens the page as figure 1; the
    # others are counted on from it.
    first = [plate for plate in figures if plate.name == _OVERVIEW]
    rest = [plate for plate in figures if plate.name != _OVERVIEW]
    figure_links = [(f"figure-{plate.name}", plate.title) for plate in (*first, *rest)]
    kernel_links = [(f"kernel-{kernel.name}", _capital(kernel.title)) for kernel in kernels.ALL]
    wrong = [("refuted", "What was refuted")] if judged.refuted(claims) else []
    contents = [
        ("answer", "The answer", [("who", "Who can focus"), *wrong]),
        ("figures", "Figures", figure_links),
        ("formulas", "Formulas", kernel_links),
        ("cross-check", "Cross-check", []),
        ("claims", "Claims", claim_links(claims)),
        ("reproduce", "How to reproduce", []),
    ]
    shown = "".join(figure_block(plate, 1, 2) for plate in first)
    finding = "".join(plate.title for plate in first)
    body = [
        answer.opening(_TITLE, shown, finding, crosscheck, claims),
        contents_list(contents),
        _SLIDERS,
        figures_section(rest, len(first) + 1),
        _formulas(),
        comparison.section_of(crosscheck),
        claims_section(claims, ledger.ALL),
        _reproduce(meta),
    ]
    return document(_TITLE, "\n".join(body), _script())


def _style() -> str:
    """Return the style sheet with the font of mathematics inside."""
    # Browsers without a font of mathematics set MathML with the wrong sizes of roots and bars, and
    # a page that is opened from a disk can fetch none.
    home = resources.files("sparsity.report")
    font = base64.b64encode(home.joinpath("fonts", "math.woff2").read_bytes()).decode()
    return home.joinpath("style.css").read_text("utf-8").replace("MATH_WOFF2", font)


def _script() -> str:
    """Return the script that shows the values of a figure on hover, as an element."""
    code = resources.files("sparsity.report").joinpath("hover.js").read_text("utf-8")
    return f"<script>\n{code}</script>\n"


def document(title: str, body: str, script: str = "") -> str:
    """Return a whole page in the style of the report.

    Args:
        title: as text.
        body: as HTML.
        script: an element that stands at the end; without it the page must say the same.
    """
    # The empty icon keeps a browser from asking a server for one: nothing at all is fetched.
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_style()}</style>\n</head>\n<body>\n"
        f"{body}\n{script}</body>\n</html>\n"
    )


def _capital(title: str) -> str:
    """Return a title with a capital first letter, as HTML."""
    return escape(title[:1].upper() + title[1:])


def contents_list(contents: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]) -> str:
    """Return the table of contents.

    Args:
        contents: for each section the name its link leads to, its title, and the same two of each
            of its parts; a section with parts can be folded.
    """

    def link(name: str, title: str) -> str:
        return f'<a href="#{name}">{prose(title)}</a>'

    items = []
    for name, title, children in contents:
        inner = "".join(f"<li>{link(*child)}</li>" for child in children)
        here = link(name, title)
        if inner:
            here = f"<details open><summary>{here}</summary><ol>{inner}</ol></details>"
        items.append(f"<li>{here}</li>")
    return f'<nav aria-label="Contents">\n<ol>{"".join(items)}</ol>\n</nav>'


def figure_block(plate: Plate, count: int, level: int = 3) -> str:
    """Return one figure with its number, caption and data, under a heading of a level."""
    # The picture has its title drawn in: the one of the heading is there for readers of the HTML
    # without pictures alone. The data are inside, as hover.js reads them; the files are linked.
    data = parts.data_link(f"{plate.name}.csv", plate.files["csv"], "text/csv", "CSV")
    svg = plate.files["svg"].decode()
    drawing = inline_svg(svg, f"svg-{plate.name}", plate.alt)
    kind = "plate colours" if plate.colours else "plate"
    places = f' data-places="{escape(said)}"' if (said := parts.described(svg)) else ""
    return (
        f'<figure id="figure-{plate.name}"{places}>\n<h{level} class="count">Figure {count}'
        f'<span class="hidden">: {escape(plate.title)}</span>'
        f'<span class="enlarge"> · tap it to enlarge</span></h{level}>\n'
        f'<div class="{kind}" role="region" tabindex="0" aria-label="Figure {count}">'
        f"{drawing}</div>\n<div><figcaption>{escape(plate.caption)}</figcaption>\n"
        f'<p class="files">Its data: {data}. The figure, in the folder of this page: '
        f'<a href="{plate.name}.svg">SVG</a>, <a href="{plate.name}.png">PNG</a>.</p></div>\n'
        "</figure>"
    )


def figures_section(figures: Sequence[Plate], first: int = 1) -> str:
    """Return the section of the figures with captions and data, counted from `first`."""
    blocks = [figure_block(plate, count) for count, plate in enumerate(figures, first)]
    return section("figures", "Figures", "\n".join(blocks))


def _formulas() -> str:
    """Return the section of the formulas: each kernel with what is derived of it."""
    out = [
        f"<p>The sparsity of attention weights <i>a</i> is</p>{formulas.METRIC}"
        "<p>Scores are Gaussian, with bias β = <i>q</i>·μ and spread γ = σ‖<i>q</i>‖. Each kernel "
        "is one definition; a symbolic derivation, quadrature and Monte Carlo each start from it "
        "alone, and the stable closed forms are checked against all three. Below, each result is "
        "derived from the definition of the weight <i>a</i>; an arrow marks a limit, ∼ the leading "
        "term.</p>"
    ]
    # Derived again here rather than read from a table: a formula on the page cannot be another
    # than that of the definition.
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


def terms(rows: Sequence[tuple[str, str]]) -> str:
    """Return a list of names and what they stand for, both HTML."""
    # A style sheet cannot ask how long a formula is: long ones are marked here, and set smaller on
    # narrow screens. Their length is about that of their text without tags.
    out = []
    for name, meaning in rows:
        long = "<math" in meaning and len(unescape(re.sub("<[^>]+>", "", meaning))) > _WIDE
        kind = ' class="wide"' if long else ""
        out.append(f"<dt>{name}</dt><dd{kind}>{meaning}</dd>")
    return f'<dl class="lines">{"".join(out)}</dl>'


def _reproduce(meta: Mapping[str, Any]) -> str:
    """Return the section that says how the page was made and how to make it again."""
    seed = escape(str(meta.get("seed", 0)))
    rows = [(escape(str(name)), escape(str(value))) for name, value in meta.items()]
    made = table(["made with", ""], rows, "Versions, device and seed")
    content = (
        "<p>With the package installed, this command computes everything on this page again:</p>\n"
        f"<pre><code>sparsity reproduce --seed {seed}</code></pre>\n"
        "<p>The same seed on the same device gives the same numbers. The claims alone: "
        "<code>sparsity claims</code>; the cross-check alone: <code>sparsity verify</code>.</p>\n"
    )
    return section("reproduce", "How to reproduce", f'{content}<div class="compact">{made}</div>')


def __dir__() -> list[str]:
    return sorted(__all__)
