"""The symbols every definition and derivation is written in, under the field's names."""

from __future__ import annotations

from typing import Any

from sympy import Idx, IndexedBase, Symbol

s = Symbol("s", real=True)  # score s = q·k of a key against the query
beta = Symbol("beta", real=True)  # bias β = q·μ: the mean score
gamma = Symbol("gamma", positive=True)  # spread γ = σ‖q‖: the score's standard deviation
decay = Symbol("lambda", positive=True)  # decay λ per token of distance
n = Symbol("n", integer=True, positive=True)  # length of the row
j = Symbol("j", integer=True, positive=True)  # position of a key, 1…n
d = Symbol("d", integer=True, positive=True)  # dimension of the features
ratio = Symbol("r", positive=True)  # noise-to-signal ratio σ̃/μ̃ of one feature
sigma = Symbol("sigma", positive=True)  # standard deviation of one i.i.d. feature

i = Idx("i")  # index of a feature; a range in it would make Sum(…).subs(d, 3) wrong in SymPy
q: Any = IndexedBase("q", shape=(d,), nonnegative=True)  # nonnegative query features q̃
k: Any = IndexedBase("k", shape=(d,), nonnegative=True)  # nonnegative key features k̃
mu: Any = IndexedBase("mu", shape=(d,), positive=True)  # their mean μ̃
Sigma: Any = IndexedBase("Sigma", shape=(d, d), real=True)  # their covariance Σ̃
