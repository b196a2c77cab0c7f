"""How sharply the layers of a model can focus, from its configuration alone.

`describe` reads a `config.json`, or the header of a GGUF file, makes a `Row` of every kind of layer
(`configuration.layer_kinds`), and asks the exact law for n_eff at several lengths.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.configuration import LayerKind, layer_kinds
from sparsity.attention.library import library
from sparsity.attention.settings import yarn_amplitude
from sparsity.checks import check_path
from sparsity.errors import InputError
from sparsity.exact_law.exact import exact
from sparsity.kernels import RowMap
from sparsity.kernels.parameters import GAMMA, LENGTH
from sparsity.output import json_file, require_regular_file
from sparsity.rows.row import Row
from sparsity.rows.score_laws import Scores
from sparsity.rows.tokens import Step
from sparsity.tables import data_frame, html_table

if TYPE_CHECKING:
    import pandas

MAX_LENGTHS = 1000  # of a table; each asks the exact law once for every kind
LENGTHS = (4096, 32768, 131072, 2**20)
GAMMA_OF_SMOLLM2 = 2.9  # the median over its heads at 2048 tokens, without sinks


@dataclass(frozen=True)
class Description:
    """A model's kinds of layers, and how many tokens a query of each attends to.

    Args:
        family: its `model_type`.
        kinds: of its layers.
        gamma: the spread of scores before temperature, cap and window, by kind.
        lengths: n.
        n_eff: by the exact law, [kinds, lengths]; NaN where a kind has no weights, or no law.
    """

    family: str
    kinds: tuple[LayerKind, ...]
    gamma: tuple[float, ...]
    lengths: tuple[int, ...]
    n_eff: np.ndarray

    @property
    def rows(self) -> tuple[Row | None, ...]:
        """The row of each kind; None for layers without attention weights."""
        each = zip(self.kinds, self.gamma, strict=True)
        return tuple(kind.row(gamma) if kind.softmax else None for kind, gamma in each)

    def named_rows(self, *steps: Step) -> dict[str, Row]:
        """Return the row of each kind with attention weights, with `steps` before its own.

        Temperature, cap and window act on what these steps do. `sparsity.plot(found)` draws n_eff
        against the length, and

            needle = NeedleAbove(12, distance=0)  # where every window sees it
            sparsity.plot(found.named_rows(needle), of="needle_recall:32")

        whether a key is found whose score is 12 above the mean. Rows of a top-k indexer take no
        steps: with steps they are left out.
        """
        found = {}
        for kind, row in zip(self.kinds, self.rows, strict=True):
            if row is not None and not (steps and isinstance(row.kernel, RowMap)):
                # A step that is a law of the scores comes first in a row: others act on it.
                laws = tuple(step for step in row.steps if isinstance(step, Scores))
                own = tuple(step for step in row.steps if not isinstance(step, Scores))
                kernel = getattr(row.kernel, "uncapped", row.kernel)  # the cap is one of the steps
                found[kind.title] = Row(kernel, steps=(*laws, *steps, *own), **row.params)
        return found

    def columns(self) -> dict[str, Any]:
        """Return kinds, layers, head dimension, RoPE, γ, and n_eff at each length."""
        own = {
            "layers": [kind.title for kind in self.kinds],
            "count": [len(kind.layers) for kind in self.kinds],
            "head_dim": [kind.head_dim for kind in self.kinds],
            "rope": [_rope(kind) for kind in self.kinds],
            "gamma": [*self.gamma],
        }
        lengths = {f"n_eff at {n}": self.n_eff[:, i] for i, n in enumerate(self.lengths)}
        return own | lengths

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a table with a row for each kind of layer."""
        return data_frame(self.columns())

    def notes(self) -> list[str]:
        """Return what the configuration does not say, once each."""
        return list(dict.fromkeys(note for kind in self.kinds for note in kind.notes))

    def as_json(self) -> dict[str, Any]:
        """Return everything in JSON's types."""
        kinds = []
        for kind, row, n_eff in zip(self.kinds, self.rows, self.n_eff, strict=True):
            values = {str(n): _number(x) for n, x in zip(self.lengths, n_eff, strict=True)}
            kinds.append(
                {
                    "title": kind.title,
                    "layers": list(kind.layers),
                    "head_dim": kind.head_dim,
                    "scale": kind.scale,
                    "rope": _rope(kind),
                    "qk_norm": kind.qk_norm,
                    "row": None if row is None else row.described(),
                    "n_eff": values,
                    "notes": list(kind.notes),
                }
            )
        return {"model_type": self.family, "kinds": kinds}

    def __repr__(self) -> str:
        lines = [f"{self.family}: {sum(len(kind.layers) for kind in self.kinds)} layers"]
        for kind, gamma, values in zip(self.kinds, self.gamma, self.n_eff, strict=True):
            lines.append(f"  {len(kind.layers)} × {kind.title}, d = {kind.head_dim}, {_rope(kind)}")
            if kind.softmax:
                each = zip(self.lengths, values, strict=True)
                shown = ", ".join(f"{x:.4g} at n = {n}" for n, x in each)
                lines.append(f"    n_eff at γ = {gamma:g}: {shown}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes())])

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        columns = self.columns()
        rows = zip(*(np.asarray(x).tolist() for x in columns.values()), strict=True)
        return html_table([*columns], rows, "; ".join([self.family, *self.notes()]))


def describe(
    config: str | os.PathLike[str] | Mapping[str, Any],
    *,
    gamma: float | None = None,
    lengths: Sequence[int] = LENGTHS,
) -> Description:
    """Return the rows of a model's layers and n_eff of each, from its configuration.

    Args:
        config: a `config.json`, a folder that has one, a GGUF file, or the fields themselves.
        gamma: the spread of scores before temperature, cap and window, as measured; None is, under
            QK-norm, that of gains 1 (`QKNorm.from_gains` has that of others); else the median of
            SmolLM2's heads.
        lengths: n of the table.

    Returns:
        The kinds of layers with their rows; shown as a table in a notebook.

    Raises:
        InputError: no such file, a field that is missing or out of range, or a bad γ or length.
    """
    fix = "give a config.json, its folder, or the fields themselves"
    fields = config if isinstance(config, Mapping) else _read(check_path("config", config, fix))
    kinds = layer_kinds(fields)
    own = fields.get("text_config")
    family = str((own if isinstance(own, Mapping) else fields).get("model_type", "unknown"))
    given = None if gamma is None else float(GAMMA.one(gamma))
    asked = LENGTH.check(lengths).ravel()
    if not asked.size or asked.size > MAX_LENGTHS:
        fix = f"give from one to {MAX_LENGTHS} row lengths"
        raise InputError("lengths", f"{asked.size} lengths", fix)
    ns = tuple(int(n) for n in asked)
    # γ as given; else that of QK-norm with gains 1; else a guess.
    spreads = tuple(given or kind.unit_gamma or GAMMA_OF_SMOLLM2 for kind in kinds)
    each = zip(kinds, spreads, strict=True)
    found = np.array([[_n_eff(kind, spread, n) for n in ns] for kind, spread in each])
    return Description(family, kinds, spreads, ns, found.reshape(len(kinds), len(ns)))


def _n_eff(kind: LayerKind, gamma: float, n: int) -> float:
    """Return n_eff of a kind of layer by the exact law; NaN where it has no weights, or no law."""
    if not kind.softmax:
        return np.nan
    try:
        return float(exact(kind.row(gamma), length=n))
    except InputError as error:
        if error.argument in ("length", "of", "row"):  # no law at this length
            return np.nan
        raise


def _rope(kind: LayerKind) -> str:
    """Return RoPE of a kind of layer in a few words."""
    if kind.rotation is None:
        return "no RoPE"
    turned = kind.rotation.turned
    part = "" if turned == kind.head_dim else f", {turned} of {kind.head_dim} entries"
    rule = "" if kind.rotation.scaling is None else f", {kind.rotation.scaling}"
    return f"RoPE base {kind.rotation.base:g}{part}{rule}"


def _number(x: float) -> float | None:
    return None if np.isnan(x) else float(x)


def _read(path: Path) -> Mapping[str, Any]:
    """Return the fields of a configuration in a file or a folder.

    Raises:
        InputError: there is none, or it holds something else.
    """
    path = path / "config.json" if path.is_dir() else path
    require_regular_file(path, "config")
    try:
        if path.suffix == ".gguf":
            return _of_gguf(path)
        found = json_file(path)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError("config", path, "is not there; give a config.json or its folder") from None
    except Exception:  # noqa: BLE001  the library of GGUF raises what it meets
        raise InputError("config", path, "holds no configuration; give a config.json") from None
    if not isinstance(found, dict):
        raise InputError("config", path, "holds no configuration; give a config.json")
    return found


# GGUF's names, after that of the architecture, of the fields that `layer_kinds` reads.
_OF_GGUF = {
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "embedding_length": "hidden_size",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "rope.freq_base": "rope_theta",
}


def _of_gguf(path: Path) -> Mapping[str, Any]:
    """Return the header of a GGUF file under the names of a `config.json`.

    A linear factor may stand there without its type, and YaRN's `attn_factor` multiplies the usual
    amplitude, where `attention_factor` is the amplitude itself.
    """
    reader = library("gguf").GGUFReader(path)
    named = reader.get_field("general.architecture")
    family = "unknown" if named is None else str(named.contents())
    own = {
        name.removeprefix(f"{family}."): field.contents()
        for name, field in reader.fields.items()
        if name.startswith(f"{family}.")
    }
    config: dict[str, Any] = {"model_type": family.replace("-", "_")}
    config |= {name: own[key] for key, name in _OF_GGUF.items() if key in own}
    kind = own.get("rope.scaling.type", "none")
    factor = own.get("rope.scaling.factor") or own.get("rope.scale_linear")
    if kind != "none" or (factor and factor != 1):
        scaling = {"rope_type": "linear" if kind == "none" else kind, "factor": factor}
        if trained := own.get("rope.scaling.original_context_length"):
            scaling["original_max_position_embeddings"] = trained
        if kind == "yarn":
            own_factor = own.get("rope.scaling.attn_factor", 1.0)
            scaling["attention_factor"] = own_factor * yarn_amplitude({}, factor or 1.0)
        config["rope_scaling"] = scaling
    if any(tensor.name == "rope_freqs.weight" for tensor in reader.tensors):
        config["rope_freqs"] = "a table of factors"  # of the angles: named as not read
    return config
