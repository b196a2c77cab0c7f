"""Layers as a labelled dataset: predictions beside measurements, residuals, rank correlations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity import quantities
from sparsity.arguments import instance
from sparsity.attention.measurement import law, sinks
from sparsity.attention.measurement.layers import contexts, measure_layer
from sparsity.attention.measurement.sources import Source
from sparsity.output import netcdf_bytes, netcdf_path, write

if TYPE_CHECKING:
    import xarray

SHORTEST = 8  # keys in sight, for a row to count in a correlation or an average
TESTED = 50  # keys in sight without the sinks, for a row's logits to be tested
# Over √n ≥ √50, the distance that 1 % of Gaussian samples exceed, by simulation at n = 200 and 500.
LILLIEFORS = 1.045  # his own table of 1967 has 1.031

MEANING = {
    "length": "n, the keys that the row sees",
    "S": "sparsity S = ‖a‖₁/(√n ‖a‖₂) of the row",
    "n_eff": "effective number of attended tokens 1/Σp²",
    "entropy": "entropy −Σ p ln p over the keys, in nats",
    "largest": "largest weight p of the row",
    "sink_mass": "weight p of the sink key, and of the learned sink where there is one",
    "n_eff_rest": "n_eff of the row without the sink key",
    "S_rest": "S of the row without the sink key",
    "length_others": "keys that the row sees and that are no sinks",
    "n_eff_others": "n_eff of the row without all of its sinks",
    "S_others": "S of the row without all of its sinks",
    "sinks_mass": "weight p of all sinks together, and of the learned sink",
    "learned_sink": "weight p of the learned sink, which with those of the keys sums to 1",
    "beta": "mean of the row's logits",
    "gamma": "standard deviation of the row's logits",
    "skew": "skewness of the row's logits",
    "kurtosis": "excess kurtosis of the row's logits",
    "distance": "Kolmogorov–Smirnov distance of the logits from N(beta, gamma²)",
    "sink_logit": "logit of the sink key less the mean of the others",
    "top_logit_rest": "largest logit without the sink key, less the mean of these logits",
    "gamma_rest": "standard deviation of the logits without the sink key",
    "skew_rest": "skewness of the logits without the sink key",
    "kurtosis_rest": "excess kurtosis of the logits without the sink key",
    "distance_rest": "Kolmogorov–Smirnov distance of the logits without the sink key",
    "gamma_others": "standard deviation of the logits without all sinks",
    "top_logit_others": "largest logit without all sinks, less the mean of these logits",
    "skew_others": "skewness of the logits without all sinks",
    "kurtosis_others": "excess kurtosis of the logits without all sinks",
    "distance_others": "Kolmogorov–Smirnov distance of the logits without all sinks",
    "sinks_logit": "log Σ e^s over the sinks less the mean of the other logits",
    "S_limit": "limit law exp(−gamma²/2)",
    "S_exact": "exact law √(E n_eff/n) of n Gaussian logits of spread gamma",
    "S_limit_rest": "limit law exp(−gamma_rest²/2)",
    "S_exact_rest": "exact law of n − 1 Gaussian logits of spread gamma_rest",
    "S_limit_others": "limit law exp(−gamma_others²/2)",
    "S_exact_others": "exact law of length_others Gaussian logits of spread gamma_others",
    "S_given_others": "law of the row given its largest logit, nothing fitted",
    "S_head_others": "the same with a constant of the head, fitted on all other texts",
    "kappa": "that constant, by which gamma is multiplied, fitted on all texts",
    "kappa_stderr": "its standard error, from texts drawn with replacement",
    "residual_limit": "log(S / S_limit)",
    "residual_exact": "log(S / S_exact)",
    "residual_limit_rest": "log(S_rest / S_limit_rest)",
    "residual_exact_rest": "log(S_rest / S_exact_rest)",
    "residual_limit_others": "log(S_others / S_limit_others)",
    "residual_exact_others": "log(S_others / S_exact_others)",
    "rank_limit": "Spearman correlation over rows of S with the limit law",
    "rank_exact": "Spearman correlation over rows of S with the exact law",
    "rank_limit_rest": "Spearman correlation over rows of S_rest with its limit law",
    "rank_exact_rest": "Spearman correlation over rows of S_rest with its exact law",
    "rank_limit_others": "Spearman correlation over rows of S_others with its limit law",
    "rank_exact_others": "Spearman correlation over rows of S_others with its exact law",
    "departs": "share of the rows of 50 keys or more that fail Lilliefors' test, sinks left out",
    "last_row": "weights p of the last query that sees any key, on every key",
    "key_importance": "mean weight of the key over the rows that see it, if a quarter do",
    "importance": "mean weight of the sink key over the rows that see it",
    "top_importance": "largest such mean of any key seen by a quarter of the rows or more",
    "top_key": "position of that key",
    "token": "the token at each position, as the vocabulary spells it",
    "loss": "mean next-token loss, in nats",
}

_BY_CONTEXT = ("importance", "top_importance", "top_key")


def rank_correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's correlation along the last axis, over the places where both are known."""
    from scipy import stats  # slow to import

    known = np.isfinite(x) & np.isfinite(y)
    ranks = []
    for values in (x, y):
        rank = stats.rankdata(np.where(known, values, np.inf), axis=-1)
        count = known.sum(-1, keepdims=True)
        ranks.append(np.where(known, rank - (count + 1) / 2, 0.0))
    a, b = ranks
    with np.errstate(invalid="ignore"):
        return (a * b).sum(-1) / np.sqrt((a * a).sum(-1) * (b * b).sum(-1))


def predicted(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The laws at each row's own n and γ̂, residuals, and rank correlations of each head.

    Args:
        found: a layer of logits, as `measure_layer` and `sinks.without` return it.

    Returns:
        By name, [heads, T], or [heads] for correlations; in the precision of these.
    """
    n, out = found["length"], {}
    counts, keys = n >= SHORTEST, n - np.isfinite(found["sink_logit"])
    rows = (("", n), ("_rest", keys), ("_others", found["length_others"]))
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        for tag, seen in rows:
            S, gamma = found[f"S{tag}"], found[f"gamma{tag}"]
            for name, log_S in (
                ("limit", law.log_limit(gamma)),
                ("exact", np.log(law.exact(seen, gamma))),
            ):
                out[f"S_{name}{tag}"] = np.exp(log_S)
                out[f"residual_{name}{tag}"] = np.log(S) - log_S
                known = np.where(counts, log_S, np.nan)
                out[f"rank_{name}{tag}"] = rank_correlation(S, known)
        if "distance_others" in found:
            distance, left = found["distance_others"], found["length_others"]
            tested = (left >= TESTED) & np.isfinite(distance)
            beyond = tested & (distance > LILLIEFORS / np.sqrt(left))
            out["departs"] = beyond.sum(-1) / tested.sum(-1)
    with np.errstate(under="ignore"):
        return {name: np.asarray(value, n.dtype) for name, value in out.items()}


def measured(
    source: Source, sink: int | None = None, of: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """A layer measured, with and without its sinks, beside its predictions where it has logits."""
    found = measure_layer(source, sink, of)
    found |= sinks.without(source, sinks.found(found["key_importance"]), found, sink, of)
    return found | predicted(found) if "gamma" in found else found


def _labels(name: str) -> dict[str, str]:
    """What a variable is, by `MEANING` or as a quantity."""
    if name in MEANING:
        return {"long_name": MEANING[name], "units": "1"}
    quantity = quantities.named(name)
    return {"long_name": quantity.title, "units": quantity.unit}


def dataset(
    layers: Sequence[dict[str, np.ndarray]],
    attributes: Mapping[str, Any],
    of_layers: Mapping[str, Sequence[Any]] | None = None,
) -> xarray.Dataset:
    """The layers of one run as an xarray.Dataset with every law beside what was measured.

    Args:
        layers: as `measured` returns them, all of one shape; emptied, to hold no number twice.
        attributes: of the dataset.
        of_layers: "layer", the number of each where they are not all; "module", the path in its
            model of the module that made each.
    """
    import xarray

    names = [name for name in MEANING if name in layers[0]]
    names += [name for name in layers[0] if name not in MEANING]
    found = {name: np.stack([layer.pop(name) for layer in layers]) for name in names}
    length, keys = found["S"].shape[-1], found["last_row"].shape[-1]
    before = keys - length if attributes["causal"] else 0  # tokens before the first query
    single = found["importance"].shape[-1] == 1
    at = [before + length] if single else contexts(length)
    variables = {}
    for name, values in found.items():
        last = ("row",)
        if name in ("last_row", "key_importance"):
            last = ("key",)
        elif name in _BY_CONTEXT:
            last = ("context",)
        elif name.startswith("rank_") or name == "departs":
            last = ()
        if name in ("length", "length_others"):
            values = values.astype(np.int32)
        labels = _labels(name)
        variables[name] = (("layer", "head", *last), values, labels)
    given = {"layer": np.arange(len(layers))} | dict(of_layers or {})
    words = {"layer": {}, "module": {"long_name": "path of the layer's module in the model"}}
    return xarray.Dataset(
        variables,
        coords={name: ("layer", list(x), words[name]) for name, x in given.items()}
        | {
            "head": np.arange(found["S"].shape[1]),
            "row": (
                "row",
                before + np.arange(1, length + 1),
                {"long_name": "position of the query, from 1"},
            ),
            "key": ("key", np.arange(1, keys + 1), {"long_name": "position of the key, from 1"}),
            "context": (
                "context",
                np.asarray(at),
                {"long_name": "T, tokens of the text up to which rows are averaged"},
            ),
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

    instance("data", data, xarray.Dataset, "give a dataset of measure")
    packed = {str(name): {"zlib": True, "shuffle": True} for name, v in data.items() if v.ndim}
    place = netcdf_path(path)
    write(place, netcdf_bytes(data, packed))
    return place
