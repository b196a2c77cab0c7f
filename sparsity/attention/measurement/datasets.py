"""Layers as a labelled dataset: what is measured beside what theory says, residuals, ranks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.attention.measurement import row_laws, sinks
from sparsity.attention.measurement.attention_layers import Layer
from sparsity.attention.measurement.layers import contexts, measure_layer
from sparsity.checks import check_instance
from sparsity.errors import InputError
from sparsity.output import netcdf_bytes, netcdf_path, write

if TYPE_CHECKING:
    import xarray

MIN_RANKED = 8  # keys in sight, for a row to count in a correlation or an average

TAGS = ("", "_without_sink_key", "_without_sinks")  # what is left out of a row
LAWS = ("limit", "exact")
MEANING = {
    "length": "n, the keys that the row sees",
    "S": "sparsity S = ‖a‖₁/(√n ‖a‖₂) of the row",
    "n_eff": "effective number of attended tokens 1/Σp²",
    "entropy": "entropy −Σ p ln p over the keys, in nats",
    "largest": "largest weight p of the row",
    "sink_mass": "weight p of the sink key, and of the learned sink where there is one",
    "n_eff_without_sink_key": "n_eff of the row without the sink key",
    "S_without_sink_key": "S of the row without the sink key",
    "length_without_sinks": "keys that the row sees and that are no sinks",
    "n_eff_without_sinks": "n_eff of the row without all of its sinks",
    "S_without_sinks": "S of the row without all of its sinks",
    "all_sinks_mass": "weight p of all sinks together, and of the learned sink",
    "learned_sink_mass": "weight p of the learned sink, which with those of the keys sums to 1",
    "beta": "mean of the row's logits",
    "gamma": "standard deviation of the row's logits",
    "sink_logit": "logit of the sink key less the mean of the others",
    "top_logit_without_sink_key": "largest logit without the sink key, less the mean of these",
    "gamma_without_sink_key": "standard deviation of the logits without the sink key",
    "gamma_without_sinks": "standard deviation of the logits without all sinks",
    "top_logit_without_sinks": "largest logit without all sinks, less the mean of these logits",
    "all_sinks_logit": "log Σ e^s over the sinks less the mean of the other logits",
    "S_limit": "limit law exp(−gamma²/2)",
    "S_exact": "exact law √(E n_eff/n) of n Gaussian logits of spread gamma",
    "S_limit_without_sink_key": "limit law exp(−gamma_without_sink_key²/2)",
    "S_exact_without_sink_key": "exact law of n − 1 logits of spread gamma_without_sink_key",
    "S_limit_without_sinks": "limit law exp(−gamma_without_sinks²/2)",
    "S_exact_without_sinks": "exact law of the keys left, of spread gamma_without_sinks",
    **{f"residual_{law}{tag}": f"log(S{tag} / S_{law}{tag})" for tag in TAGS for law in LAWS},
    **{
        f"rank_{law}{tag}": f"Spearman correlation over rows of S{tag} with S_{law}{tag}"
        for tag in TAGS
        for law in LAWS
    },
    "key_importance": "mean weight of the key over the rows that see it, if a quarter do",
    "importance": "mean weight of the sink key over the rows that see it",
    "top_importance": "largest such mean of any key seen by a quarter of the rows or more",
    "top_key": "position of that key",
    "module": "path of the layer's module in the model",
    "row": "position of the query, from 1",
    "key": "position of the key, from 1",
    "context": "T, tokens of the text up to which rows are averaged",
    "token": "the token at each position, as the vocabulary spells it",
}

# Axes of a variable beside layer and head; all others have "row", and rank correlations none.
_AXES = {
    "key_importance": ("key",),
    **dict.fromkeys(("importance", "top_importance", "top_key"), ("context",)),
}


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation along the last axis, over the places where both are known."""
    from scipy import stats  # slow to import

    # Unknown places sort behind all known ones, so the ranks of the known are 1 … count; centred
    # and set to 0 where unknown, they need no compression. Ties get mean ranks.
    known = np.isfinite(x) & np.isfinite(y)
    ranks = []
    for values in (x, y):
        rank = stats.rankdata(np.where(known, values, np.inf), axis=-1)
        count = known.sum(-1, keepdims=True)
        ranks.append(np.where(known, rank - (count + 1) / 2, 0.0))
    a, b = ranks
    with np.errstate(invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def measure_with_laws(
    layer: Layer, sink: int | None = None, of: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Measure a layer with and without its sinks, beside what theory says where it has logits.

    Args:
        layer: the layer.
        sink: as in `measure_layer`.
        of: likewise.

    Returns:
        By name, what `measure_layer`, `measure_without_sinks` and `compare_with_laws` find.
    """
    measured = measure_layer(layer, sink, of)
    is_sink = sinks.find_sinks(measured["key_importance"])
    measured |= sinks.measure_without_sinks(layer, is_sink, measured, sink)
    return measured | compare_with_laws(measured) if "gamma" in measured else measured


def compare_with_laws(measured: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the laws at each row's own n and γ̂, residuals, and rank correlations of each head.

    Args:
        measured: a layer of logits, as `measure_layer` and `measure_without_sinks` return it.

    Returns:
        By name, [heads, T], or [heads] for correlations; in the precision of these.
    """
    # Each row has three lengths: with all keys, without the sink key, and without all sinks. The
    # law beside it is asked at the same length and at the spread of the same keys.
    n, out = measured["length"], {}
    counts, left = n >= MIN_RANKED, measured["length_without_sinks"]
    lengths = (n, n - np.isfinite(measured["sink_logit"]), left)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        for tag, keys in zip(TAGS, lengths, strict=True):
            S, gamma = measured[f"S{tag}"], measured[f"gamma{tag}"]
            log_laws = row_laws.log_limit_law(gamma), np.log(row_laws.exact_law(keys, gamma))
            for name, log_S in zip(LAWS, log_laws, strict=True):
                out[f"S_{name}{tag}"] = np.exp(log_S)
                out[f"residual_{name}{tag}"] = np.log(S) - log_S
                known = np.where(counts, log_S, np.nan)
                out[f"rank_{name}{tag}"] = rank_correlation(S, known)
        return {name: np.asarray(value, measured["S"].dtype) for name, value in out.items()}


def with_laws(data: xarray.Dataset) -> xarray.Dataset:
    """Return a measurement of logits with what theory says beside each row.

    Args:
        data: what `measure_transformers` returned.

    Returns:
        The same with S_limit, S_exact, residuals and ranks, as `measure` has them.

    Raises:
        InputError: no measurement of logits.
    """
    import xarray

    fix = "give a dataset of measure_transformers"
    if not {"layer", "gamma"} <= {*check_instance("data", data, xarray.Dataset, fix).variables}:
        raise InputError("data", "without layers of logits", fix)
    rows = [str(name) for name, x in data.items() if x.dims == ("layer", "head", "row")]
    layers = [
        compare_with_laws({name: data[name].values[i] for name in rows})
        for i in range(data.sizes["layer"])
    ]
    return data.assign({name: _variable(name, layers) for name in [*layers[0]]})


def _variable(
    name: str, layers: Sequence[dict[str, np.ndarray]]
) -> tuple[tuple[str, ...], np.ndarray, dict[str, str]]:
    """Return a variable of all layers as xarray takes it: axes, values and what it means.

    The layers are emptied of it, to hold no number twice.
    """
    values = np.stack([layer.pop(name) for layer in layers])
    axes = ("layer", "head", *_AXES.get(name, () if name.startswith("rank_") else ("row",)))
    if name in ("length", "length_without_sinks"):
        values = values.astype(np.int32)
    if name in MEANING:
        return axes, values, {"long_name": MEANING[name], "units": "1"}
    quantity = quantities.named(name)
    return axes, values, {"long_name": quantity.title, "units": quantity.unit}


def label_layers(
    layers: Sequence[dict[str, np.ndarray]],
    attributes: Mapping[str, Any],
    of_layers: Mapping[str, Sequence[Any]] | None = None,
) -> xarray.Dataset:
    """Return the layers of one run as an xarray.Dataset, every variable with its meaning.

    Args:
        layers: as `measure_with_laws` returns them, all of one shape; emptied.
        attributes: of the dataset.
        of_layers: "layer", the number of each where they are not all; "module", the path in its
            model of the module that made each.
    """
    import xarray

    # Variables come in the order of `MEANING`, what `of` asked for behind them.
    names = [name for name in MEANING if name in layers[0]]
    names += [name for name in layers[0] if name not in MEANING]
    variables = {name: _variable(name, layers) for name in names}
    _, heads, length = variables["S"][1].shape
    keys = variables["key_importance"][1].shape[-1]
    # Causal queries are the last of all tokens, as where the first were kept in a cache.
    before = keys - length if attributes["causal"] else 0
    single = variables["importance"][1].shape[-1] == 1
    numbered = {"layer": np.arange(len(layers))} | dict(of_layers or {})
    coords = {name: ("layer", list(x)) for name, x in numbered.items()} | {
        "head": ("head", np.arange(heads)),
        "row": ("row", before + np.arange(1, length + 1)),
        "key": ("key", np.arange(1, keys + 1)),
        "context": ("context", np.asarray([before + length] if single else contexts(length))),
    }
    return xarray.Dataset(
        variables,
        coords={
            name: (*x, {"long_name": MEANING[name]} if name in MEANING else {})
            for name, x in coords.items()
        },
        attrs={
            k: "the first key that a row sees" if v is None else v for k, v in attributes.items()
        },
    )


def save(data: xarray.Dataset, path: str | os.PathLike[str]) -> Path:
    """Write a measurement as compressed netCDF, whole or not at all.

    Raises:
        InputError: the path cannot be written; nothing is left behind.
    """
    import xarray

    check_instance("data", data, xarray.Dataset, "give a dataset of measure")
    # Shuffled, the exponents of floats lie together and compress; scalars cannot be compressed.
    packed = {str(name): {"zlib": True, "shuffle": True} for name, v in data.items() if v.ndim}
    place = netcdf_path(path)
    write(place, netcdf_bytes(data, packed))
    return place
