"""What RoPE and CoCA have in common as steps: random keys make the score at every distance."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from sparsity.arguments import number, vector
from sparsity.errors import InputError, printable
from sparsity.rows.rope_scaling import RopeScaling
from sparsity.rows.rotation import angles, planes, split
from sparsity.rows.tokens import Tokens, every

NORMAL = 8.0  # spreads from zero at which a normal number is never negative: P < 1e−15


class RotaryStep:
    """A step that gives every distance m its β_m and γ_m.

    Its fields hold arrays, which neither compare nor hash: equality goes by their plain values.
    """

    own: ClassVar[dict[str, float]] = {"beta": 0.0, "gamma": 1.0}  # a row with it needs no γ

    query: Any
    pairing: str
    base: float
    scaling: RopeScaling | None
    turned: int | None

    def _check_rotation(self) -> None:
        """Check query, pairing, base, scaling and the turned entries, and keep what they read as.

        Raises:
            InputError: no finite, nonzero vector of an even d, an unknown pairing, a base <= 1, no
                scaling of `sparsity.rows.rope_scaling`, or more turned entries than there are.
        """
        q = vector("query", self.query, "give one finite, nonzero vector")
        if not np.any(q):
            raise InputError("query", self.query, "give one finite, nonzero vector")
        angles(q.size, self.base)
        split(q, self.pairing)
        base = number("base", self.base, "must be finite and > 1", lambda x: x > 1)
        if self.scaling is not None and not hasattr(type(self.scaling), "by_length"):
            fix = "give a rule such as sparsity.YarnScaling(4, 4096), or None"
            raise InputError("scaling", self.scaling, fix)
        if self.turned is not None:
            fix = f"give an even number of entries from 2 to {q.size}, or None for all"
            turned = number("turned", self.turned, fix, lambda x: 2 <= x <= q.size and x % 2 == 0)
            object.__setattr__(self, "turned", int(turned))
        object.__setattr__(self, "query", q)
        object.__setattr__(self, "base", base)

    def _values(self) -> dict[str, Any]:
        """Return the fields in plain types, vectors as tuples."""
        names = [field.name for field in fields(self)]  # pyright: ignore[reportArgumentType]
        given = {name: getattr(self, name) for name in names}
        return {k: tuple(v.tolist()) if isinstance(v, np.ndarray) else v for k, v in given.items()}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({shown})"

    def _repr_pretty_(self, page: Any, cycle: bool) -> None:
        """Show vectors of many entries cut short in a notebook; `repr` stays code."""
        page.text(printable(repr(self), 300))

    def beta(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return the mean β_m of the score at each distance m, in a row of that length.

        Without a length it is the row that ends at the largest distance: dynamic scaling asks.
        """
        raise NotImplementedError

    def gamma(self, distance: Any, length: int | None = None) -> np.ndarray:
        """Return the standard deviation γ_m of the score at each distance m, likewise."""
        raise NotImplementedError

    @property
    def normal(self) -> bool:
        """Whether the scores are normal."""
        return True

    def theta(self, length: int) -> np.ndarray:
        """Return θ_i of the planes that turn in a row of that length."""
        dim = self.query.size if self.turned is None else self.turned
        if self.scaling is None:
            return angles(dim, self.base)
        return self.scaling.angles(dim, self.base, length)

    def _every_theta(self, distance: Any, length: int | None) -> np.ndarray:
        """Return θ_i of every plane, 0 for those that do not turn."""
        # Dynamic scaling changes every angle with the length of the row, near keys' among them.
        reach = int(np.max(distance, initial=0)) + 1 if length is None else length
        turning = self.theta(reach)
        return np.append(turning, np.zeros(self.query.size // 2 - len(turning)))

    def planes(self, x: Any) -> np.ndarray:
        """Return the planes of a vector as complex numbers, those that turn first."""
        return planes(x, self.pairing, self.turned)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance: all differ."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        """Add β_m to β and set γ to γ_m; sinks stay as they are.

        Raises:
            InputError: scores that are not normal.
        """
        if not self.normal:
            fix = f"must be >= {NORMAL:g}·spread, or Coca the only step of a row of exp"
            raise InputError("center", getattr(self, "center", None), fix)
        own_beta, own_gamma = (f(tokens.distance, length) for f in (self.beta, self.gamma))
        beta = np.where(tokens.sink, tokens.beta, tokens.beta + own_beta)
        gamma = np.where(tokens.sink, tokens.gamma, own_gamma)
        return replace(tokens, beta=beta, gamma=gamma)
