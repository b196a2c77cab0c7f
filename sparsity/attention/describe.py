"""How sharply the layers of a model can focus, from its configuration alone.

`describe` reads a `config.json`, or the header of a GGUF file, makes a `Row` of every kind of layer
(`configuration.kinds_of`), and asks the exact law for n_eff at several lengths.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.configuration import LayerKind, kinds_of
from sparsity.attention.sources import read_model
from sparsity.calls import public
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact
from sparsity.kernels import RowMap
from sparsity.kernels.parameters import GAMMA, LENGTH
from sparsity.output import json_ready
from sparsity.rows.row import Row
from sparsity.rows.score_laws import Scores
from sparsity.rows.tokens import Step
from sparsity.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas

MAX_LENGTHS = 1000  # of a table; each asks the exact law once for every kind
LENGTHS = (4096, 32768, 131072, 2**20)
GAMMA_OF_SMOLLM2 = 2.9  # the median over its heads at 2048 tokens, without sinks
LADDER = (2.0, 3.0, 4.0)  # γ of most heads that were measured
# Where the γ of a kind comes from.
GIVEN = "given"
UNIT = "QK-norm: scale·√d, of gains 1; the learned gains are in the weights"
ASSUMED = "assumed: median head of SmolLM2; give --gamma"


@dataclass(frozen=True)
class Description:
    """A model's kinds of layers, and how many tokens a query of each attends to.

    Args:
        family: its `model_type`.
        kinds: of its layers.
        gamma: the spread of scores before temperature, cap and window, by kind.
        lengths: n.
        n_eff: by the exact law, [kinds, lengths]; NaN where a kind has no weights, or no law.
        origins: where each γ comes from, in words.
        context: the longest row that the model takes; None where it does not say.
        source: who read the configuration, in words.
    """

    family: str
    kinds: tuple[LayerKind, ...]
    gamma: tuple[float, ...]
    lengths: tuple[int, ...]
    n_eff: np.ndarray
    origins: tuple[str, ...]
    context: int | None
    source: str

    @property
    def rows(self) -> tuple[Row | None, ...]:
        """The row of each kind; None for layers without attention weights, or without a law."""
        pairs = zip(self.kinds, self.gamma, strict=True)
        return tuple(kind.row(gamma) if kind.has_law else None for kind, gamma in pairs)

    @cached_property
    def ladder(self) -> np.ndarray:
        """n_eff at the γ of `LADDER`, as softmax takes the scores of short rows: [kinds, 3, n]."""
        spreads = [[gamma / kind.temperature for gamma in LADDER] for kind in self.kinds]
        return _n_eff(self.kinds, spreads, self.lengths)

    def named_rows(self, *steps: Step) -> dict[str, Row]:
        """Return the row of each kind with attention weights, with `steps` before its own.

        Temperature, cap and window act on what these steps do. `sparsity.plot(found)` draws n_eff
        against the length, and

            needle = NeedleAbove(12, distance=0)  # where every window sees it
            sparsity.plot(found.named_rows(needle), of="needle_recall:32")

        whether a key is found whose score is 12 above the mean. Rows of a top-k indexer take no
        steps: with steps they are left out.

        Raises:
            InputError: there is no law of any kind.
        """
        by_kind = {}
        for kind, row in zip(self.kinds, self.rows, strict=True):
            if row is not None and not (steps and isinstance(row.kernel, RowMap)):
                # A step that is a law of the scores comes first in a row: others act on it.
                laws = tuple(step for step in row.steps if isinstance(step, Scores))
                others = tuple(step for step in row.steps if not isinstance(step, Scores))
                kernel = getattr(row.kernel, "uncapped", row.kernel)  # the cap is one of the steps
                by_kind[kind.title] = Row(kernel, steps=(*laws, *steps, *others), **row.params)
        if not by_kind:
            why = next((x.lawless for x in self.kinds if x.lawless), "no attention weights")
            raise InputError("config", self.family, f"no law of its rows: {why}")
        return by_kind

    def columns(self) -> dict[str, Any]:
        """Return kinds, layers, head dimension, RoPE, γ and its origin, and n_eff by length."""
        columns = {
            "layers": [kind.title for kind in self.kinds],
            "count": [len(kind.layers) for kind in self.kinds],
            "head_dim": [kind.head_dim for kind in self.kinds],
            "scale": [kind.scale for kind in self.kinds],
            "rope": [_rope(kind) for kind in self.kinds],
            "gamma": [*self.gamma],
            "gamma_is": [*self.origins],
        }
        lengths = {f"n_eff at {n}": self.n_eff[:, i] for i, n in enumerate(self.lengths)}
        return columns | lengths

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each kind of layer."""
        return data_frame(self.columns())

    def notes(self) -> list[str]:
        """Return what the configuration does not say, once each."""
        said = [note for kind in self.kinds for note in kind.notes]
        lawless = [f"no n_eff: {kind.lawless}" for kind in self.kinds if kind.lawless]
        return list(dict.fromkeys([*lawless, *said]))

    def as_json(self) -> dict[str, Any]:
        """Return everything in JSON's types."""
        kinds = []
        for i, (kind, row) in enumerate(zip(self.kinds, self.rows, strict=True)):
            ladder = zip(LADDER, self.ladder[i], strict=True)
            kinds.append(
                {
                    "title": kind.title,
                    "layers": kind.layers,
                    "head_dim": kind.head_dim or None,
                    "scale": kind.scale,
                    "rope": _rope(kind),
                    "qk_norm": kind.qk_norm,
                    "temperature": kind.temperature,
                    "gamma": self.gamma[i],
                    "gamma_is": self.origins[i] or None,
                    "row": None if row is None else row.described(),
                    "n_eff": self._by_length(self.n_eff[i]),
                    "n_eff_of_gamma": {f"{x:g}": self._by_length(values) for x, values in ladder},
                    "notes": kind.notes,
                    "no_law": kind.lawless or None,
                }
            )
        about = {"model_type": self.family, "context": self.context, "source": self.source}
        return json_ready(about | {"kinds": kinds})

    def _by_length(self, values: np.ndarray) -> dict[str, float]:
        return dict(zip(map(str, self.lengths), values, strict=True))

    def __repr__(self) -> str:
        count = sum(len(kind.layers) for kind in self.kinds)
        if not any(kind.softmax for kind in self.kinds):
            return f"{self.family}: {count} layers, none with attention weights"
        context = f", rows of up to {self.context} tokens" if self.context else ""
        lines = [f"{self.family}: {count} layers{context}; read from {self.source}", ""]
        for i, kind in enumerate(self.kinds, 1):
            lines += [f"{i:>3}  {len(kind.layers)} × {kind.title}", *_details(kind)]
        if any(kind.has_law for kind in self.kinds):
            lines += ["", *_aligned(self._table()), ""]
            lines += [f"* γ of {i}: {said}" for said, i in self._by_origin().items()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes())])

    def _table(self) -> list[list[str]]:
        """Return the cells of n_eff: of every law, at its γ and at those of the ladder."""
        table = [["n_eff", "γ", *(f"n = {n}" for n in self.lengths)]]
        shown: set[Row] = set()
        for i, (kind, row) in enumerate(zip(self.kinds, self.rows, strict=True)):
            if row is None or row in shown:
                continue
            shown.add(row)
            name = _listed(j for j, other in enumerate(self.rows, 1) if other == row)
            marked = f"{self.gamma[i] * kind.temperature:.3g}*"
            table.append([name, marked, *(f"{x:.4g}" for x in self.n_eff[i])])
            for gamma, values in zip(LADDER, self.ladder[i], strict=True):
                if f"{gamma:g}*" != marked:
                    table.append(["", f"{gamma:g}", *(f"{x:.4g}" for x in values)])
        return table

    def _by_origin(self) -> dict[str, str]:
        """Return the numbers of the kinds by what is said of their γ*."""
        kinds: dict[str, list[int]] = {}
        for i, (kind, said) in enumerate(zip(self.kinds, self.origins, strict=True), 1):
            if kind.has_law and (factor := kind.temperature) != 1:
                before = "it contains" if said == ASSUMED else f"{self.gamma[i - 1]:.4g} ×"
                said += f"; {before} {factor:.4g} of RoPE's scaling"
            if kind.has_law:
                kinds.setdefault(said, []).append(i)
        return {said: _listed(numbers) for said, numbers in kinds.items()}

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        columns = self.columns()
        rows = zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True)
        return html_table([*columns], rows, "; ".join([self.family, *self.notes()]))


@public
def describe(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    gamma: float | None = None,
    lengths: Sequence[int] | None = None,
) -> Description:
    """Return the rows of a model's layers and n_eff of each, from its configuration.

    A `config.json` is read as the class of its family in `transformers` reads it, where that is
    installed: the file alone leaves out what the class fills in, and no n_eff is given.

    Args:
        config: a `config.json`, a folder that has one, a GGUF file, or the fields themselves.
        gamma: the spread of scores before temperature, cap and window; None is, under QK-norm, that
            of gains 1 (`QKNorm.from_gains` has that of others); else that of which softmax takes
            the median of SmolLM2's heads: a constant temperature is in it.
        lengths: n of the table; None is 4096, 32768, 131072 and 1048576 up to the longest row that
            the model takes, and that.

    Returns:
        The kinds of layers with their rows; shown as a table in a notebook.

    Raises:
        InputError: no such file, a field that is missing or out of range, or a bad γ or length.
    """
    model = read_model(config)
    kinds = kinds_of(model)
    given = None if gamma is None else float(GAMMA.one(gamma))
    context = model.context
    if lengths is None:
        lengths = sorted({n for n in LENGTHS if n <= (context or n)} | {context or LENGTHS[0]})
    asked = LENGTH.check(lengths).ravel()
    if not asked.size or asked.size > MAX_LENGTHS:
        raise InputError("lengths", f"{asked.size} lengths", f"give 1 to {MAX_LENGTHS} of them")
    ns = tuple(int(n) for n in asked)
    spreads, origins = zip(*(_spread(kind, given) for kind in kinds), strict=True)
    n_eff = _n_eff(kinds, [[spread] for spread in spreads], ns)[:, 0]
    return Description(model.type, kinds, spreads, ns, n_eff, origins, context, model.source)


def _spread(kind: LayerKind, given: float | None) -> tuple[float, str]:
    """Return γ of a kind before its temperature, and where it comes from."""
    if not kind.has_law:
        return np.nan, ""
    if given is not None:
        return given, GIVEN
    if kind.unit_gamma is not None:
        return kind.unit_gamma, UNIT
    return GAMMA_OF_SMOLLM2 / kind.temperature, ASSUMED


def _n_eff(
    kinds: Sequence[LayerKind], spreads: Sequence[Sequence[float]], lengths: Sequence[int]
) -> np.ndarray:
    """Return n_eff by the exact law, [kinds, spreads of each, lengths]; NaN where there is none."""
    laws = [
        [_of_row(kind.row(x), n) if kind.has_law else np.nan for n in lengths]
        for kind, of_kind in zip(kinds, spreads, strict=True)
        for x in of_kind
    ]
    return np.reshape(laws, (len(kinds), -1, len(lengths)))


@lru_cache(maxsize=4 * MAX_LENGTHS)  # kinds of layers often have the same rows
def _of_row(row: Row, n: int) -> float:
    """Return n_eff of a row by the exact law; NaN where it has none at this length."""
    try:
        return float(exact(row, length=n))
    except InputError as error:
        if error.argument in ("length", "of", "row"):  # no law at this length
            return np.nan
        raise


def _details(kind: LayerKind) -> list[str]:
    """Return what a kind of layer is beside its title, in a line; none where it has no law."""
    if not kind.has_law:
        return []
    steps = kind.row(1.0).described().get("steps", [])
    norm = ", QK-norm" if kind.qk_norm else ""
    said = f"d = {kind.head_dim}, scale {kind.scale:.4g}, {_rope(kind)}{norm}"
    return [f"     {said}{'; steps ' if steps else ''}{' '.join(map(str, steps))}"]


def _aligned(table: list[list[str]]) -> list[str]:
    """Return the lines of a table, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(x.rjust(w) for x, w in zip(row, widths, strict=True)) for row in table]


def _listed(numbers: Iterable[int]) -> str:
    """Return numbers as they are listed, the ends of many."""
    shown = [str(i) for i in numbers]
    return ", ".join(shown) if len(shown) < 4 else f"{shown[0]} … {shown[-1]}"


def _rope(kind: LayerKind) -> str:
    """Return RoPE of a kind of layer in a few words."""
    if kind.rotation is None:
        return "no RoPE" if kind.has_law else "not known" if kind.softmax else ""
    turned = kind.rotation.turned
    part = "" if turned == kind.head_dim else f", {turned} of {kind.head_dim} entries"
    scaling = kind.rotation.scaling
    rule = ", a table of factors" if kind.rotation.table else ""
    if scaling is not None:
        rule = f", {type(scaling).__name__} by {getattr(scaling, 'factor', 1):g}"
    return f"RoPE base {kind.rotation.base:g}{part}{rule}"
