"""The page in HTML: what stands in its tables, and `page.html`, the template that lays it out."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import sympy
from markupsafe import Markup, escape

from sparsity import claims_ledger as ledger
from sparsity import kernels, quantities
from sparsity.claims_ledger.findings import counted_verdicts, with_basis
from sparsity.derivation import Derivation, Limit, derive, mathml
from sparsity.design_search import Impossible, design
from sparsity.errors import InputError
from sparsity.kernels import Kernel, parameters
from sparsity.output import power_of_ten

if TYPE_CHECKING:
    from sparsity.report.figures import Plate

LENGTH, TOKENS = 1024, 8  # the row of the first table, and how many tokens it is to attend to
_OVERVIEW = "overview"  # the figure that answers the question of the title
# Below e^−708 float64 loses digits, and below e^−745 it has 0.
_LEAST_LOG = -690
_RAISED = re.compile(r"(?<=[^\s^_])([\^_])(?:\(([^()]*)\)|\{([^{}]*)\}|(−?[^\W_]+|∞))")


def number(value: Any, digits: int = 6) -> str:
    """Return a value for reading: few digits, a true minus, powers of ten, a list with commas."""
    if isinstance(value, (list, tuple)):
        return ", ".join(number(item, digits) for item in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, (int, float)):
        return "—" if value is None else str(value)
    if not math.isfinite(value):
        return "—" if math.isnan(value) else "∞" if value > 0 else "−∞"
    # A float of 10⁶ or more is a rounded one, and all its digits would say more than it knows.
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{int(value):,}".replace("-", "−")
    mantissa, _, power = f"{value:.{digits}g}".replace("-", "−").partition("e")
    return (
        f"{mantissa}\u202f×\u202f{power_of_ten(int(power.replace('−', '-')))}"
        if power
        else mantissa
    )


def exponential(log: float) -> str:
    """Return e^log for reading, also where float64 has 0."""
    return number(math.exp(log)) if log > _LEAST_LOG else f"e^({number(log)})"


def prose(text: str) -> Markup:
    """Return plain text as HTML, in which x^2, x^(−1/4), m_p and m_{p−1} are set."""

    def raised(mark: re.Match[str]) -> str:
        tag = "sup" if mark[1] == "^" else "sub"
        return f"<{tag}>{mark[2] or mark[3] or mark[4]}</{tag}>"

    return Markup(_RAISED.sub(raised, str(escape(text))))


@dataclass(frozen=True)
class Focus:
    """A line of the table of who can focus.

    Args:
        kernel: the kernel.
        verdict: "yes" or "no", or "" where neither is proven.
        sharper: the limits at which S is 0, in words.
        flatter: those at which it is 1.
        takes: what brings a row of `LENGTH` down to `TOKENS` tokens.
    """

    kernel: Kernel
    verdict: str
    sharper: str
    flatter: str
    takes: str


def _short_meaning(parameter: parameters.Parameter) -> str:
    """Return the meaning of a parameter without its formula, such as "spread γ"."""
    name = parameter.meaning.split(" = ")[0]
    return name.removesuffix(" per token").removesuffix(" of a feature")


_MEANINGS = {parameter.name: _short_meaning(parameter) for parameter in parameters.ALL}
SYMBOLS = {name: meaning.rsplit(" ", 1)[-1] for name, meaning in _MEANINGS.items()}


def _describe_approach(limit: Limit) -> str:
    """Return in words how a limit is approached, such as "larger spread γ"."""
    names = [_MEANINGS[p.name] for p in parameters.ALL if p.symbol == limit.variable]
    name = names[0] if names else str(limit.variable)
    way = {sympy.oo: "larger", -sympy.oo: "lower", sympy.S.Zero: "smaller"}.get(limit.point)
    words = f"{way} {name}" if way else f"{name} near {limit.point}"
    if limit.condition == sympy.true:
        return words
    plain = isinstance(limit.condition, str)
    where = limit.condition if plain else sympy.pretty(limit.condition, use_unicode=True)
    return f"{words} ({where})"


def _what_focus_takes(kernel: Kernel) -> tuple[str, bool]:
    """Return what brings a row down to `TOKENS` tokens, and whether that is impossible."""
    # Nonnegative features have no law at finite n. In long rows one feature has S² = 1/(1 + r²),
    # r = σ̃/μ̃, and n·S² = TOKENS gives r.
    if kernel is kernels.nonnegative:
        return f"σ̃/μ̃ = {number(math.sqrt(LENGTH / TOKENS - 1), 3)} (one feature, limit law)", False
    try:
        design_found = design(kernel, length=LENGTH, n_eff=TOKENS, lengths=[])
    except Impossible as why:
        return f"out of reach: at least {number(round(why.reach.low))} tokens", True
    except InputError:
        return "not computed", False
    values = {name: float(value) for name, value in design_found.row.params.items()}
    values.pop(design_found.parameter, None)
    given = ", ".join(f"{SYMBOLS[name]} = {number(value, 3)}" for name, value in values.items())
    # Of exp the bias is left out: softmax does not depend on it.
    at = f" at {given}" if given and kernel is not kernels.exp else ""
    return f"{SYMBOLS[design_found.parameter]} = {number(design_found.value, 3)}{at}", False


def who_can_focus(derivations: Sequence[Derivation]) -> list[Focus]:
    """Return for each kernel whether S can fall to 0, by what, and what a row takes."""
    lines = []
    for derived in derivations:
        sharper, flatter = (
            "; ".join(
                _describe_approach(limit)
                for limit in derived.limits
                if limit.quantity == "S" and limit.value == value
            )
            for value in (0, 1)
        )
        takes, never = _what_focus_takes(derived.kernel)
        # "no" needs a proof: a design found to be impossible. No limit 0 in a list is none.
        verdict = "yes" if sharper else "no" if never else ""
        lines.append(
            Focus(derived.kernel, verdict, sharper or "nothing", flatter or "nothing", takes)
        )
    return lines


def _count_by_route(cells: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return each pair of theory and sampler with its cells, the agreeing ones and max |z|."""
    groups: dict[tuple[str, str], list[Any]] = {}
    for cell in cells:
        theory, sampled = cell.instruments
        how = cell.route.replace("-", " ")
        key = theory, f"{sampled}: {how}" if sampled == "pooled rows" else how
        groups.setdefault(key, []).append(cell)
    return [
        (*key, len(same), _count_agreeing(same), f"{max(abs(cell.z) for cell in same):.2f}")
        for key, same in sorted(groups.items())
    ]


def _count_by_pair(cells: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return for each pair of theories the number of points compared, and how many agree."""
    count = Counter(cell.instruments for cell in cells)
    return [
        (*pair, total, _count_agreeing([cell for cell in cells if cell.instruments == pair]))
        for pair, total in count.items()
    ]


def _count_agreeing(cells: Sequence[Any]) -> int:
    return sum(cell.verdict == "agree" for cell in cells)


def _estimate(estimate: Any) -> str:
    """Return an estimate with its standard error, relative where the error itself underflows."""
    value = exponential(estimate.log_value)
    if estimate.stderr > 0 or estimate.rel_stderr == 0:
        return f"{value} ± {number(estimate.stderr, 2)}"
    return f"{value} × (1 ± {number(estimate.rel_stderr, 2)})"


def _places(svg: bytes) -> str:
    """Return where the curves of a figure lie, which its SVG says of itself; "" if it does not."""
    described = re.search(r"<dc:description>(.*?)</dc:description>", svg.decode(), re.DOTALL)
    return unescape(described[1]) if described else ""


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names in any of several records, each once."""
    return list(dict.fromkeys(name for row in rows for name in row))


def _is_nested(value: Any) -> bool:
    """Tell a mapping, or a list of mappings or lists, from a value that is written in a line."""
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(value, Mapping) or (first is not value and isinstance(first, (Mapping, list)))


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "capital": lambda title: title[:1].upper() + title[1:],
        "number": number,
        "exponential": exponential,
        "prose": prose,
        "with_basis": with_basis,
        "base64": lambda content: base64.b64encode(content).decode(),
        "sha256": lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
        "estimate": _estimate,
        "names": _names,
        "places": _places,
        "symbol": lambda quantity: quantities.named(quantity).symbol,
    }
    environment.tests["nested"] = _is_nested
    return environment.from_string(_read("page.html").decode())


def _read(name: str) -> bytes:
    return resources.files("sparsity.report").joinpath(*name.split("/")).read_bytes()


def render(
    figures: Sequence[Plate],
    crosscheck: Any,
    claims: Sequence[Mapping[str, Any]],
    meta: Mapping[str, Any],
) -> str:
    """Return the page as HTML; its figures are the files NAME.svg beside it.

    Args:
        figures: the figures, in order; the one named "overview" comes first.
        crosscheck: the result of `verify`.
        claims: the records of `claims`.
        meta: what to state about the run, by name; see `environment`.

    Returns:
        The document; the same arguments give the same text.
    """
    # Derived again here rather than read from a table: a formula on the page cannot be another
    # than that of the definition.
    derivations = [derive(kernel) for kernel in kernels.ALL]
    return _template().render(
        figures=sorted(figures, key=lambda plate: plate.name != _OVERVIEW),
        overview=[plate for plate in figures if plate.name == _OVERVIEW],
        focus=who_can_focus(derivations),
        length=LENGTH,
        tokens=TOKENS,
        derivations=[(derived, *mathml.derivation(derived)) for derived in derivations],
        metric=mathml.METRIC,
        crosscheck=crosscheck,
        agreeing=_count_agreeing(crosscheck.cells),
        largest_z=max((abs(cell.z) for cell in crosscheck.cells), default=0.0),
        odd=[cell for cell in crosscheck.cells if cell.verdict != "agree"],
        routes=_count_by_route(crosscheck.cells),
        pairs=_count_by_pair(crosscheck.exact),
        symbols=SYMBOLS,
        claims=claims,
        refuted=[(i, x) for i, x in enumerate(claims, 1) if x["verdict"] == "refuted"],
        counted=counted_verdicts([record["verdict"] for record in claims]),
        legends={claim.key: claim for claim in ledger.ALL},
        meta=meta,
        font=base64.b64encode(_read("fonts/math.woff2")).decode(),
        style=_read("style.css").decode(),
        script=_read("hover.js").decode(),
    )
