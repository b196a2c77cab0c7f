"""What grows with the length of the row: factors on the scores, by the rules that models ship with.

Each rule is a step of its own; `Temperature` names them by the models that use them:
`Temperature.llama4()`, or `temperature:llama4` at the prompt. A row of n keys is that of a query at
position n − 1, counted from 0. `LengthBias`, the −ln n of sigmoid attention, is added to the
scores.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Never

import numpy as np

from sparsity.calls import did_you_mean
from sparsity.checks import check_number, check_whole, keep_checked
from sparsity.errors import InputError
from sparsity.rows.tokens import AlikeStep, Tokens, every

PUBLISHED_SCALE = 0.43  # of ln n; published, Nakanishi (2025), arXiv:2501.19399


class Temperature(AlikeStep):
    """A step that multiplies the scores so far by a factor: β and γ are multiplied with it.

    Its static methods are the rules under the names of the models that ship them. Each rule is a
    frozen dataclass of this class.
    """

    name: ClassVar[str]
    example: ClassVar[tuple[Any, ...]]

    def __init__(self, *number: Never) -> None:
        rules = ", ".join(f".{rule}()" for rule in RULES[1:])
        fix = f"for a constant T give gamma/T; rules are Temperature.{RULES[0]}(), {rules}"
        raise InputError("temperature", number[0] if number else None, fix)

    @staticmethod
    def llama4() -> FloorLog:
        """Return Llama 4's rule in layers without RoPE: 1 + 0.1·ln(1 + ⌊n/8192⌋)."""
        return FloorLog(0.1, 8192, 1)

    @staticmethod
    def mistral(trained: int = 16384) -> FloorLog:
        """Return Mistral 3's rule: 1 + 0.1·ln(1 + ⌊(n − 1)/n₀⌋), n₀ the trained length."""
        return FloorLog(0.1, trained, 0)

    @staticmethod
    def qwen(trained: int = 8192) -> LogLength:
        """Return the rule of Qwen (2023): max(1, ln n/ln n₀), n₀ the trained length."""
        return LogLength(trained)

    @staticmethod
    def ssmax(scale: float = PUBLISHED_SCALE, bias: float = 0.0) -> ScalableSoftmax:
        """Return scalable softmax's rule: s·ln n + b."""
        return ScalableSoftmax(scale, bias)

    @staticmethod
    def yarn(extension: float = 4.0) -> Yarn:
        """Return YaRN's rule: (1 + 0.1·ln r)² of a context that is r times the trained one."""
        return Yarn(extension)

    @staticmethod
    def longrope(extension: float = 32.0, trained: int = 4096) -> LongRope:
        """Return LongRoPE's rule: 1 + ln r/ln L of a context r times the trained length L."""
        return LongRope(extension, trained)

    @staticmethod
    def scale_invariant(scale: float = 10.0) -> ScaleInvariant:
        """Return scale-invariant attention's rule: a factor and a bias that go by the distance."""
        return ScaleInvariant(scale)

    def factor(self, length: int) -> float:
        """Return what the scores of a row of that length are multiplied by."""
        raise NotImplementedError

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        factor = self.factor(length)
        return replace(tokens, beta=factor * tokens.beta, gamma=factor * tokens.gamma)


RULES = ("llama4", "mistral", "qwen", "ssmax", "yarn", "longrope", "scale_invariant")


def described() -> dict[str, str]:
    """Return what each rule is, by its name as it is typed."""
    lines = {rule: inspect.getdoc(getattr(Temperature, rule)) or "" for rule in RULES}
    return {rule: said.removeprefix("Return ").rstrip(".") for rule, said in lines.items()}


def named(rule: str, numbers: list[float]) -> Temperature:
    """Return the temperature that models ship under a name, "yarn", with the numbers that it takes.

    Raises:
        InputError: no such name, or numbers that the rule does not take.
    """
    key = rule.strip().replace("-", "_")
    if key not in RULES:
        rules = f"the rules are {', '.join(RULES)}; a constant T is gamma/T"
        hint = did_you_mean(key, RULES) or "write temperature:RULE[,NUMBER]; "
        raise InputError("temperature", rule, hint + rules)
    make = getattr(Temperature, key)
    takes = [*inspect.signature(make).parameters]
    if len(numbers) > len(takes):
        said = ", ".join(takes) or "no numbers"
        raise InputError("temperature", f"{rule},{numbers[-1]:g}", f"{key} takes {said}")
    return make(*numbers)


@dataclass(frozen=True)
class FloorLog(Temperature):
    """The rule of Llama 4: c = 1 + slope·ln(1 + ⌊(n − 1 + offset)/trained⌋).

    It changes nothing below the trained length, and jumps at its multiples.

    Args:
        slope: > 0; 0.1 in every model that ships it.
        trained: n₀ ≥ 1, the length from which on it acts.
        offset: added to the position of the query, ≥ 0: 1 in Llama 4, 0 in Mistral's models.

    Source: Meta, Llama 4 (2025), `attn_scale` and `floor_scale` of its configuration; Mistral 3,
    `llama_4_scaling_beta`.
    """

    name: ClassVar[str] = "floor-log"
    example: ClassVar[tuple[Any, ...]] = (0.1, 3, 1)

    slope: float = 0.1
    trained: int = 8192
    offset: int = 1

    def __post_init__(self) -> None:
        keep_checked(self, "slope", check_number, "give one number > 0", lambda x: x > 0)
        keep_checked(self, "trained", check_whole, 1)
        keep_checked(self, "offset", check_whole, 0)

    def factor(self, length: int) -> float:
        """Return 1 + slope·ln(1 + ⌊(n − 1 + offset)/trained⌋)."""
        return 1.0 + self.slope * math.log1p((length - 1 + self.offset) // self.trained)


@dataclass(frozen=True)
class LogLength(Temperature):
    """Log-n scaling: c = max(1, ln n/ln trained)^power.

    Args:
        trained: n₀ ≥ 2, the length up to which it changes nothing.
        power: in (0, 100]; ½ is the rule in √ln n, which keeps γ over the √(2 ln n) at which one
            of n Gaussian scores takes all.

    Source: Su Jianlin (2021), kexue.fm/archives/8823; Qwen (2023), `use_logn_attn`.
    """

    name: ClassVar[str] = "log-n"
    example: ClassVar[tuple[Any, ...]] = (4,)

    trained: int
    power: float = 1.0

    def __post_init__(self) -> None:
        keep_checked(self, "trained", check_whole, 2)
        fix = "give one number > 0, at most 100"
        keep_checked(self, "power", check_number, fix, lambda x: 0 < x <= 100)

    def factor(self, length: int) -> float:
        """Return max(1, ln n/ln n₀)^power."""
        return max(1.0, math.log(length) / math.log(self.trained)) ** self.power


@dataclass(frozen=True)
class ScalableSoftmax(Temperature):
    """Scalable softmax: c = scale·ln n + bias.

    With scale = 1/ln n₀ it is log-n scaling without the maximum: it changes nothing at n₀.

    Args:
        scale: > 0; the published fit is `PUBLISHED_SCALE`.
        bias: ≥ 0.

    Source: Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025), arXiv:2501.19399.
    """

    name: ClassVar[str] = "scalable-softmax"
    example: ClassVar[tuple[Any, ...]] = (0.43,)

    scale: float = PUBLISHED_SCALE
    bias: float = 0.0

    def __post_init__(self) -> None:
        keep_checked(self, "scale", check_number, "give one number > 0", lambda x: x > 0)
        keep_checked(self, "bias", check_number, "give one number >= 0", lambda x: x >= 0)

    def factor(self, length: int) -> float:
        """Return scale·ln n + bias."""
        return self.scale * math.log(length) + self.bias


@dataclass(frozen=True)
class Yarn(Temperature):
    """YaRN's temperature: c = (1 + slope·ln extension)², whatever the length.

    Both q and k are multiplied by 1 + slope·ln r, so that scores carry its square.

    Args:
        extension: r ≥ 1, the context over the trained one.
        slope: ≥ 0.

    Source: Peng et al., YaRN (2023), arXiv:2309.00071, section 3.4; `mscale` of DeepSeek's models.
    """

    name: ClassVar[str] = "yarn"
    example: ClassVar[tuple[Any, ...]] = (4.0,)

    extension: float
    slope: float = 0.1

    def __post_init__(self) -> None:
        keep_checked(self, "extension", check_number, "give one number >= 1", lambda x: x >= 1)
        keep_checked(self, "slope", check_number, "give one number >= 0", lambda x: x >= 0)

    def factor(self, length: int) -> float:
        """Return (1 + slope·ln r)²."""
        root = 1.0 + self.slope * math.log(self.extension)
        return root * root  # a power would raise where this is infinite


@dataclass(frozen=True)
class LongRope(Temperature):
    """LongRoPE's temperature: c = 1 + ln extension/ln trained, whatever the length.

    Both q and k are multiplied by √c. It is ln(r·L)/ln L: log-n scaling at the longest row that the
    model takes, in rows of every length.

    Args:
        extension: r ≥ 1, the context over the trained one.
        trained: L ≥ 2; Phi-3 was trained at 4096.

    Source: Ding et al., LongRoPE (2024), arXiv:2402.13753; `longrope` of Phi-3's models.
    """

    name: ClassVar[str] = "longrope"
    example: ClassVar[tuple[Any, ...]] = (32.0, 4096)

    extension: float
    trained: int = 4096

    def __post_init__(self) -> None:
        keep_checked(self, "extension", check_number, "give one number >= 1", lambda x: x >= 1)
        keep_checked(self, "trained", check_whole, 2)

    def factor(self, length: int) -> float:
        """Return 1 + ln r/ln L."""
        return 1.0 + math.log(self.extension) / math.log(self.trained)


@dataclass(frozen=True)
class ScaleInvariant(Temperature):
    """Scale-invariant attention: s → c·s + 1 − c² at the distance t, c = √(2 ln(t/τ + 1) + 1).

    Of scores N(0, 1) the mean weight E e^s is then √e/(t/τ + 1): each decade of distances beyond τ
    has the same.

    Args:
        scale: τ > 0, in tokens.

    Source: Anson, Wang, Aitchison, "Scale-invariant attention" (2025), arXiv:2505.17083.
    """

    name: ClassVar[str] = "scale-invariant"
    example: ClassVar[tuple[Any, ...]] = (2.0,)

    scale: float = 10.0

    def __post_init__(self) -> None:
        fix = "give one number >= 1e-290"  # t/τ is finite
        keep_checked(self, "scale", check_number, fix, lambda x: x >= 1e-290)

    def breaks(self, length: int) -> np.ndarray:
        """Return every distance."""
        return every(length)

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        # c² = 2 ln(t/τ + 1) + 1: the bias 1 − c² is −2 ln(t/τ + 1), and E e^(cs) = e^(c²/2).
        log = np.log1p(tokens.distance / self.scale)
        factor = np.sqrt(2 * log + 1)
        beta, gamma = factor * tokens.beta - 2 * log, factor * tokens.gamma
        return replace(tokens, beta=beta, gamma=gamma)


@dataclass(frozen=True)
class LengthBias(AlikeStep):
    """Length bias: scale·ln n is added to every score.

    At scale −1 the weights of a row of sigmoid attention sum to about E e^s, whatever n. It does
    not change softmax, where it multiplies all weights by one factor.

    Args:
        scale: any number; −1 is the usual bias of sigmoid attention.

    Source: Ramapuram et al., "Theory, Analysis, and Best Practices for Sigmoid Self-Attention"
    (2024), arXiv:2409.04431.
    """

    name: ClassVar[str] = "length-bias"
    example: ClassVar[tuple[Any, ...]] = (-1.0,)

    scale: float = -1.0

    def __post_init__(self) -> None:
        keep_checked(self, "scale", check_number, "give one finite number")

    def __call__(self, tokens: Tokens, length: int) -> Tokens:
        return replace(tokens, beta=tokens.beta + self.scale * math.log(length))
