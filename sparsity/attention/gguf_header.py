"""The header of a GGUF file as a configuration, by llama.cpp's rules where the file is silent.

The header alone is read, within bounds: what its sizes promise is not believed.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from sparsity.errors import InputError

# struct's letters of the types of scalars
_TYPES = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_ITEMS = 4_000_000  # of lists and tensors: ten times the largest vocabulary
_MOST_TEXT = 2**20  # bytes of a text that is read; a chat template has tens of thousands
_MOST_BYTES = 2**40  # of anything
_MOST_KEPT = 4096  # items of a list that is kept: one for each layer


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp does with scores beside what the header says.

    Args:
        name: `general.architecture`.
        type: the `model_type` whose family it is.
        full: every how many layers one is full, the others have a window; 0 for no such rule.
        window: the window where the header has none.
        base_in_windows: of RoPE in layers with a window, where it is another one.
        cap: of the scores, where the header has none.
        large: layers of the model whose scale is by the width over the heads, not by the head.
        note: of what llama.cpp itself does otherwise.
    """

    name: str
    type: str
    full: int = 0
    window: int | None = None
    base_in_windows: float | None = None
    cap: float | None = None
    large: int = 0
    note: str = ""


ARCHITECTURES = (
    Architecture("llama", "llama"),
    Architecture("llama4", "llama4_text", full=4),
    Architecture("arcee", "arcee"),
    Architecture("gemma", "gemma"),
    Architecture("gemma2", "gemma2", full=2, window=4096, cap=50.0, large=46),
    Architecture("gemma3", "gemma3_text", full=6, base_in_windows=1e4, large=62),
    Architecture("gemma3n", "gemma3n_text", full=5, base_in_windows=1e4),
    Architecture("qwen2", "qwen2"),
    Architecture("qwen2moe", "qwen2_moe"),
    Architecture("qwen3", "qwen3"),
    Architecture("qwen3moe", "qwen3_moe"),
    Architecture("phi2", "phi"),
    Architecture("phi3", "phi3", note="llama.cpp itself runs this family without its window"),
    Architecture("gptneox", "gpt_neox"),
    Architecture("gptj", "gptj"),
    Architecture("gpt2", "gpt2"),
    Architecture("gpt-oss", "gpt_oss", full=2),
    Architecture("falcon", "falcon"),
    Architecture("bloom", "bloom"),
    Architecture("mpt", "mpt"),
    Architecture("starcoder2", "starcoder2"),
    Architecture("deepseek2", "deepseek_v3"),
    Architecture("command-r", "cohere"),
    Architecture("cohere2", "cohere2", full=4),
    Architecture("olmo", "olmo"),
    Architecture("olmo2", "olmo3", full=4),
    Architecture("olmoe", "olmoe"),
    Architecture("exaone", "exaone"),
    Architecture("exaone4", "exaone4", full=4),
    Architecture("granite", "granite"),
    Architecture("granitemoe", "granitemoe"),
    Architecture("internlm2", "internlm2"),
    Architecture("nemotron", "nemotron"),
    Architecture("seed_oss", "seed_oss"),
    Architecture("smollm3", "smollm3"),
    Architecture("glm4", "glm4"),
    Architecture("apertus", "apertus"),
    Architecture("mamba", "mamba"),
    Architecture("mamba2", "mamba2"),
)
_BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}
# Names of the header, after that of the architecture, and those of `fields.FIELDS`.
_SAME = {
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
    "embedding_length": "hidden_size",
    "attention.key_length": "head_dim",
    "context_length": "max_position_embeddings",
    "attention.sliding_window": "sliding_window",
    "attention.chunk_size": "attention_chunk_size",
    "attention.scale": "attention_multiplier",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "attention.clamp_kqv": "clip_qkv",
    "rope.dimension_count": "rotary_dim",
}
# Those of the header that are read.
READ = frozenset((
    *_SAME, "attention.key_length_mla", "attention.max_alibi_bias", "rope.freq_base",
    "rope.freq_base_swa", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor",
    "rope.scaling.yarn_log_multiplier", "expert_count",
))  # fmt: skip


@dataclass(frozen=True)
class Header:
    """A header under the names of a `config.json`.

    Args:
        name: of the architecture.
        type: the `model_type` of its family.
        values: its fields under the names of `fields.FIELDS`, by llama.cpp's rules.
        names: of its fields as they stand there.
        note: of what llama.cpp itself does otherwise.
    """

    name: str
    type: str
    values: dict[str, Any]
    names: tuple[str, ...]
    note: str


def read_header(path: Path) -> Header:
    """Return the header of a GGUF file.

    Raises:
        InputError: no header of GGUF, or none within the bounds.
    """
    try:
        header, tensors = _read_header(path)
    except (struct.error, UnicodeDecodeError, KeyError, OSError, EOFError, RecursionError):
        raise InputError("config", path, "holds no configuration; its header is broken") from None
    name = header.get("general.architecture")
    if not isinstance(name, str):
        raise InputError("config", path, "holds no configuration: no general.architecture")
    own = {
        key.removeprefix(f"{name}."): value
        for key, value in header.items()
        if key.startswith(f"{name}.")
    }
    architecture = _BY_NAME.get(name, Architecture(name, name.replace("-", "_")))
    values = {field: _alike(own[key]) for key, field in _SAME.items() if key in own}
    values["rope_freqs"] = "rope_freqs.weight" in tensors
    ruled = _ruled(architecture, own, values)
    return Header(name, architecture.type, values | ruled, tuple(own), architecture.note)


def _alike(value: Any) -> Any:
    """Return the value of every layer, where a list has the same for all."""
    return value[0] if isinstance(value, list) and len(set(map(str, value))) == 1 else value


def _ruled(
    architecture: Architecture, own: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what llama.cpp's rules say of a header."""
    layers, heads = values.get("num_hidden_layers"), values.get("num_attention_heads")
    if not isinstance(layers, int) or not 0 < layers <= _MOST_KEPT or not isinstance(heads, int):
        return {}  # `checked` says what is wrong
    width = values.get("hidden_size", 0) // heads if heads else 0
    head_dim = own.get("attention.key_length_mla") or values.get("head_dim") or width
    window = values.get("sliding_window", architecture.window)
    found: dict[str, Any] = {"head_dim": head_dim or None, "sliding_window": window}
    base = own.get("rope.freq_base", 1e4)
    rope = {"rope_theta": base} | _scaling(architecture, own, values)
    found["rope_parameters"] = rope
    windowed = bool(window) and (architecture.name != "exaone4" or layers == 64)
    in_window = [architecture.full > 0 and (i + 1) % architecture.full > 0 for i in range(layers)]
    if architecture.full and windowed:
        kinds = ("full_attention", "sliding_attention")
        found["layer_types"] = [kinds[x] for x in in_window]
        local = own.get("rope.freq_base_swa", architecture.base_in_windows)
        if local is not None:
            found["rope_parameters"] = {kinds[0]: rope, kinds[1]: {"rope_theta": local}}
    if architecture.name in ("gemma2", "gemma3"):
        found["query_pre_attn_scalar"] = width if layers == architecture.large else head_dim
        found["attn_logit_softcapping"] = values.get("attn_logit_softcapping", architecture.cap)
    if architecture.name == "llama4" and window != 0:
        kinds = ("full_attention", "chunked_attention")
        found["layer_types"] = [kinds[x] for x in in_window]
        found |= {
            "no_rope_layers": [int(x) for x in in_window],
            "attention_chunk_size": values.get("attention_chunk_size", 8192),
            "attn_temperature_tuning": True,
            "use_qk_norm": own.get("expert_count") != 128,
        }
    if architecture.name == "smollm3":
        found["no_rope_layers"] = [int((i + 1) % 4 > 0) for i in range(layers)]
    if architecture.name == "command-r":
        found["use_qk_norm"] = layers >= 64
    if architecture.name == "deepseek2" and "rotary_dim" in values:
        turned = values["rotary_dim"]
        found |= {"qk_rope_head_dim": turned, "qk_nope_head_dim": head_dim - turned}
    if "attention.max_alibi_bias" in own:
        found["attn_config"] = {"alibi_bias_max": own["attention.max_alibi_bias"]}
    return found


def _scaling(
    architecture: Architecture, own: Mapping[str, Any], values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return RoPE's rule for long contexts: a linear factor may stand there without its type.

    YaRN's `attn_factor` multiplies the usual amplitude, where `attention_factor` is the amplitude
    itself; of DeepSeek's models it is 1, and the scale has the square of 1 + multiplier·ln r.
    """
    kind = own.get("rope.scaling.type", "none")
    factor = own.get("rope.scaling.factor") or own.get("rope.scale_linear")
    given = own.get("rope.scaling.attn_factor")
    trained = own.get("rope.scaling.original_context_length")
    if kind == "none" and given is not None and trained:  # Phi-3's long contexts
        return {
            "rope_type": "longrope",
            "attention_factor": given,
            "original_max_position_embeddings": trained,
        }
    if kind == "none" and (not factor or factor == 1):
        return {}
    rope = {"rope_type": "linear" if kind == "none" else kind, "factor": factor}
    if trained:
        rope["original_max_position_embeddings"] = trained
    if kind == "yarn" and architecture.name == "deepseek2":
        rope["attention_factor"] = 1.0
        rope["mscale_all_dim"] = 10 * own.get("rope.scaling.yarn_log_multiplier", 0.0)
    elif kind == "yarn" and given is not None and factor:
        rope["attention_factor"] = given * (1 + 0.1 * math.log(factor))
    return rope


def _read_header(path: Path) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of a header, long lists left out, and the names of its tensors.

    Raises:
        Exception: of the list in `configuration`, where the file is something else.
    """
    with path.open("rb") as file:
        magic, version = _take(file, "4sI")
        if magic != b"GGUF" or version not in (2, 3):
            raise EOFError
        tensors, fields = _take(file, "QQ")
        left = iter(range(_MOST_ITEMS))
        header: dict[str, Any] = {}
        for _ in range(fields):
            _count(left)
            key = _text(file)
            header[key] = _value(file, _take(file, "I")[0], left)
        names = set()
        for _ in range(tensors):
            _count(left)
            names.add(_text(file))
            (rank,) = _take(file, "I")
            _skip(file, 8 * rank + 12)
        return header, names


def _count(left: Iterator[int]) -> None:
    """Take one of the items that may be read.

    Raises:
        EOFError: none is left.
    """
    if next(left, None) is None:
        raise EOFError


def _take(file: BinaryIO, letters: str) -> tuple[Any, ...]:
    size = struct.calcsize(f"<{letters}")
    return struct.unpack(f"<{letters}", file.read(size))


def _skip(file: BinaryIO, size: int) -> None:
    """Go on by so many bytes.

    Raises:
        EOFError: the file is shorter.
    """
    if size > _MOST_BYTES:
        raise EOFError
    if size:
        file.seek(size - 1, os.SEEK_CUR)
        if not file.read(1):
            raise EOFError


def _text(file: BinaryIO, keep: bool = True) -> str:
    (size,) = _take(file, "Q")
    if not keep or size > _MOST_TEXT:
        _skip(file, size)
        return ""
    return file.read(size).decode()


def _value(file: BinaryIO, kind: int, left: Iterator[int]) -> Any:
    """Return a value; None for a list that is too long to be of layers."""
    if kind == _TEXT:
        return _text(file)
    if kind != _LIST:
        return _take(file, _TYPES[kind])[0]
    inner, size = _take(file, "IQ")
    if size <= _MOST_KEPT:
        values = []
        for _ in range(size):
            _count(left)
            values.append(_value(file, inner, left))
        return values
    if inner in _TYPES:
        _skip(file, size * struct.calcsize(f"<{_TYPES[inner]}"))
        return None
    for _ in range(size):
        _count(left)
        _value(file, inner, left) if inner == _LIST else _text(file, keep=False)
    return None
