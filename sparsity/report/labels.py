"""What the page calls the numbers behind the claims, and which of them stand in one table."""

from __future__ import annotations

LABELS = {
    # parameters and axes
    "beta": "bias β",
    "gamma": "spread γ",
    "gammas": "spreads γ",
    "sigma": "spread σ of the keys",
    "dim": "dimension d",
    "d": "dimension d",
    "n": "row length n",
    "lengths": "row lengths n",
    "log2_n": "log₂ n",
    "decay": "decay λ",
    "ratio": "noise to signal σ̃/μ̃",
    "degree": "degree p",
    "kernel": "kernel",
    "query": "query",
    "sink": "sink",
    "c": "bound c of the scores",
    "mass": "mass of the sink",
    "model": "model",
    "source": "source",
    # theory against sampling
    "sampling": "Theory against sampling",
    "cells": "Every comparison",
    "theory": "theory",
    "estimate": "estimate",
    "stderr": "standard error",
    "z": "z",
    "critical": "|z| allowed",
    "agrees": "agrees",
    "largest_abs_z": "largest |z|",
    "false_alarm_rate": "chance of a false alarm",
    "smallest_detectable": "relative error that would show",
    "mean_across_queries": "part of the keys’ mean across the query",
    # scores
    "S": "S",
    "rows": "By row",
    "formula": "limit law",
    "exact_S_rms": "exact law, √(n_eff/n)",
    "n_eff": "n_eff, exact law",
    "n_S2": "n·S², limit law",
    "floor": "floor of S",
    "S_of_z": "S against β/γ",
    "one_over_sqrt_6": "1/√6",
    "smallest_step_of_log_S": "smallest step of log S on a grid of β/γ",
    "smallest_S": "smallest S found",
    "at_z": "at β/γ",
    # features and decay
    "ratio_needed": "Noise that S takes",
    "ratio_at_least": "σ̃/μ̃ at least",
    "norm_ratio": "‖q̃‖₂/‖q̃‖₁ of queries",
    "smallest": "smallest",
    "largest": "largest",
    "sqrt_d": "√d",
    "S_at_ratio_1": "S at σ̃/μ̃ = 1",
    "uniform": "uniform query",
    "one-hot": "one-hot query",
    "half-normal": "half-normal query",
    "softmax": "S of softmax",
    "taylor": "Taylor features of even degree p",
    "features_at_64": "features at d = 64",
    "excess": "S over softmax’s, less 1",
    "iid_smallest_S": "smallest S of i.i.d. features",
    "S_at_n_4096": "S at n = 4096",
    "window": "window n·S²",
    "slopes": "slopes of ln S against ln n",
    # sinks and mixing
    "influence_with": "influence with the sink",
    "influence_without": "influence without",
    "collapse": "Distance of the last two tokens",
    "distance": "distance",
    "sampled": "sampled",
    "toy": "Six tokens: what token 2 adds to tokens 3, 4, 5",
    "without": "without a sink",
    "with": "with a sink",
    "half_logit": "Logit for half of the mass",
    "minus_annealed": "That logit, less ln n + γ²/2",
    "mass_at_logit_5": "mass at logit 5, γ = 1",
    "distances": "Distance of the last two tokens, n = 32, 128, 512",
    "matrices": "matrices",
    "largest_ratio": "largest ratio",
    "smallest_ratio": "smallest ratio",
    "median_ratio": "median ratio",
    "mean_ratio": "mean ratio of the bounds",
    "sqrt_2": "√2",
    "stacks": "Influence over its bound",
    "lipschitz": "Lipschitz constant",
    "entries": "entries",
    "counter_example": "counter-example: influence, bound",
    "updates": "Size of a layer’s update",
    "update": "sink of value 0",
    "with_value": "sink with a token’s value",
    "published_not_recomputed": "Published, not computed here",
    "published_besides": "Published besides, not computed here",
    "sink_rate_percent": "sink rate, %",
    "loss": "loss",
    "uniform_importance": "importance of the first token in uniform attention",
    # rotary positions
    "share": "share",
    "planes": "planes",
    "mean_rise": "mean rise, tokens",
    "expected_rise": "π/(2θ_i)",
    "z_of_all": "z of all planes together",
    "whole_tokens": "mean rise counted in whole tokens, eight fastest planes",
    "share_of_free_keys": "share of planes that rise with free keys",
    "first_rise": "first rise, tokens (−1: none seen)",
    "due": "π/θ_i",
    "largest_error": "Largest error, of the largest score",
    "dual": "dual form",
    "redundant": "definition without the constraint",
    "any query": "RoPE between planes, any query",
    "smallest_error_of_slack": "smallest error of the slack form",
    "scores": "scores",
    "numbers_by_definition": "numbers by the definition",
    "numbers_of_vectors": "numbers by the dual form",
    "at": "Counted at",
    "starts": "position of the key",
    "slack": "slack form",
    "exact": "exact score",
    "scale": "Σt|q|²",
    "rms_gap": "error over Σt|q|², key at 0, 100, 10 000",
    # other weights
    "limit_form": "Degree at which n·S² = 1",
    "degree_for_two_keys": "degree for two keys",
    "keys_of_1e12": "n·S² at n = 10¹²",
    "floors": "Floor of S² for scores in [−c, c]",
    "smallest_S2": "smallest S² found",
    "two_valued_S2": "S² of two-valued scores",
    "shares": "Share of the mass that is kept",
    "printed": "printed formula",
    "drawn": "drawn",
    "support": "exact mean support",
    "long_rows": "law of long rows",
    "participation": "exact E Σp² at the length drawn",
    "limit": "E σ²/(2Eσ − Eσ²)",
    "found": "exact E Σa²",
}

# Where a name means something else in one claim: (claim, name).
OWN = {
    ("relu2", "z"): "β/γ",
    ("relu2", "S_of_z"): "S against β/γ",
    ("powers", "rows"): "Keys at p = log₂ n",
    ("powers", "ratio"): "p/log₂ n",
    ("bounded-scores", "floor"): "floor 4mM/(m+M)²",
    ("bounded-scores", "rows"): "Softmax rows",
    ("bounded-scores", "share"): "n_eff/n, scores uniform on [−2, 2]",
    ("bounded-scores", "exp"): "n_eff at γ = 2√(2 ln n)",
    ("exp", "floor"): "floor of rows, 1/√n",
    ("exp", "rows"): "Limit law and exact law",
    ("decay", "rows"): "Rows of λ^(n−j)",
    ("sparsemax-keys", "rows"): "Support by length",
    ("sparsemax-keys", "z"): "z of rows drawn",
    ("stick-breaking", "z"): "z of rows drawn",
    ("softpick-mass", "share"): "derived",
    ("rope-anomaly", "share"): "share of planes with Θ_i > π",
    ("decay-bound", "distance"): "distance, tokens",
}

# Lists that run together, each a column of one table.
COLUMNS = (
    ("mean_rise", "expected_rise", "z"),
    ("first_rise", "due"),
    ("starts", "slack", "exact"),
    ("distance", "mean_ratio"),
    ("influence_with", "influence_without"),
    ("without", "with"),
    ("lengths", "mass_at_logit_5"),
)

# Lists of lists: (rows, columns) by the names of what runs along them.
GRIDS = {"half_logit": ("gammas", "lengths"), "minus_annealed": ("gammas", "lengths")}

ROUGH = frozenset(
    {"z", "critical", "largest_abs_z", "stderr", "smallest_detectable", "z_of_all", "excess"}
)

ROUTES = {
    "scalar-stratified": "scores, stratified",
    "position-stratified": "positions, stratified",
    "rows": "whole rows",
    "rows-law": "whole rows, each token with its own law",
    "rows-drawn": "whole rows of a map",
    "rows-full-keys": "whole rows of whole keys",
    "rows-sphere": "whole rows, keys on a sphere",
    "rows-rope": "whole rows under RoPE",
    "rows-coca": "whole rows under CoCA",
    "rows-slack": "whole rows under CoCA-Slack",
    "full-keys": "whole keys",
}


def words(name: str, claim: str = "") -> str:
    """What the page calls a number; an unknown name is written with spaces."""
    return OWN.get((claim, name)) or LABELS.get(name) or name.replace("_", " ")


def route(name: str) -> str:
    """What the page calls a sampler."""
    feature = name.removeprefix("features-")
    return f"features, {feature}" if feature != name else ROUTES.get(name, name)
