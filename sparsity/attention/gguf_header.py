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

from sparsity.attention.families import BY_TYPE, UNKNOWN, Model
from sparsity.attention.fields import FIELDS, Fields, checked
from sparsity.errors import InputError

# struct's letters of the types of scalars
_TYPES = {**dict(enumerate("BbHhIif?")), 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_MOST_ITEMS = 4_000_000  # of lists and tensors: ten times the largest vocabulary
_MOST_NAMES = 2**16  # fields, and tensors: some fifty, and some thousands
_MOST_TEXT = 2**20  # bytes of a text that is read; a chat template has tens of thousands
_MOST_KEPT = 4096  # items of a list that is kept: one for each layer
# What reading raises where a size, a type or a text is not what it should be.
_BROKEN = struct.error, ValueError, KeyError, OSError, OverflowError, StopIteration, RecursionError


@dataclass(frozen=True)
class Architecture:
    """What llama.cpp does with scores beside what the header says.

    Args:
        names: `general.architecture`s; each the `model_type` of its family.
        type: that `model_type`, where it is another one.
        full: every how many layers one is full, the others have a window; 0 for no such rule.
        large: layers of the model whose scale is by the width over the heads, not by the head.
        note: of what llama.cpp itself does otherwise.
    """

    names: str
    type: str = ""
    full: int = 0
    large: int = 0
    note: str = ""


ARCHITECTURES = (
    Architecture(
        "llama arcee gemma qwen2 qwen3 gptj gpt2 falcon bloom mpt starcoder2 olmo olmoe exaone "
        "granite granitemoe internlm2 nemotron seed_oss smollm3 glm4 apertus mamba mamba2 "
        "bert bitnet dbrx deepseek dots1 ernie4_5"
    ),
    Architecture("qwen2moe", "qwen2_moe"),
    Architecture("qwen3moe", "qwen3_moe"),
    Architecture("phi2", "phi"),
    Architecture("phi3", note="llama.cpp itself runs this family without its window"),
    Architecture("gptneox", "gpt_neox"),
    Architecture("gpt-oss", "gpt_oss", full=2),
    Architecture("deepseek2", "deepseek_v3"),
    Architecture("command-r", "cohere"),
    Architecture("cohere2", full=4),
    Architecture("olmo2", "olmo3", full=4),
    Architecture("exaone4", full=4),
    Architecture("llama4", "llama4_text", full=4),
    Architecture("gemma2", full=2, large=46),
    Architecture("gemma3", "gemma3_text", full=6, large=62),
    Architecture("gemma3n", "gemma3n_text", full=5),
)
_BY_NAME = {name: x for x in ARCHITECTURES for name in x.names.split()}
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
    "attention.max_alibi_bias": "alibi_bias_max",
    "rope.dimension_count": "rotary_dim",
}


def read_header(path: Path) -> Model:
    """Return the configuration that the header of a GGUF file is, by llama.cpp's rules.

    Raises:
        InputError: no header of GGUF, or none within the bounds.
    """
    header, tensors = read_fields(path)
    name = FIELDS["model_type"].read("general.architecture", header.get("general.architecture"))
    parts = {key: x for key, x in header.items() if key.startswith(f"{name}.")}
    fields = Fields({key.removeprefix(f"{name}."): _alike(x) for key, x in parts.items()})
    architecture = _BY_NAME.get(name, Architecture(name))
    values = {field: fields.get(key) for key, field in _SAME.items()}
    values["rope_freqs"] = "rope_freqs.weight" in tensors
    values |= _ruled(name, architecture, fields, checked(values))
    family = BY_TYPE.get(architecture.type or name) if name in _BY_NAME else None
    lawless = "" if family else f"the architecture {name!r} is not known here"
    known = Fields(checked(values), (*fields.values,), frozenset(fields.read))
    notes = (architecture.note,) if architecture.note else ()
    source = "its header, by llama.cpp's rules"
    return Model(name, family or UNKNOWN, known, source, lawless, notes)


def read_fields(path: Path) -> tuple[dict[str, Any], set[str]]:
    """Return the fields of a header, None for long lists, and the names of its tensors.

    Raises:
        InputError: no header of GGUF, or none within the bounds.
    """
    try:
        with path.open("rb") as file:
            magic, version = _take(file, "4sI")
            if magic != b"GGUF" or version not in (2, 3):
                raise ValueError
            tensors, fields = _take(file, "QQ")
            if max(tensors, fields) > _MOST_NAMES:
                raise ValueError
            left = iter(range(_MOST_ITEMS))  # at its end it raises StopIteration
            header: dict[str, Any] = {}
            for _ in range(fields):
                next(left)
                key = _text(file)
                header[key] = _value(file, _take(file, "I")[0], left)
            names = set()
            for _ in range(tensors):
                next(left)
                names.add(_text(file))
                (rank,) = _take(file, "I")
                _skip(file, 8 * rank + 12)
            return header, names
    except _BROKEN:
        raise InputError("config", path, "holds no configuration; its header is broken") from None


def _number(raw: Fields, name: str) -> float:
    """Return a number of the header, 0 where it is missing.

    Raises:
        InputError: it is something else.
    """
    value = raw.get(name, 0)
    if not isinstance(value, (int, float)):
        raise InputError(name, value, "must be a number")
    return value


def _alike(value: Any) -> Any:
    """Return the value of every layer, where a list has the same for all."""
    return value[0] if isinstance(value, list) and len(set(map(str, value))) == 1 else value


def _ruled(
    name: str, architecture: Architecture, raw: Fields, values: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what llama.cpp's rules say of a header."""
    layers, heads = values.get("num_hidden_layers") or 0, values.get("num_attention_heads") or 1
    width = (values.get("hidden_size") or 0) // heads
    head_dim = _number(raw, "attention.key_length_mla") or values.get("head_dim") or width or None
    window = values.get("sliding_window")
    window = 4096 if window is None and name == "gemma2" else window
    in_window = [bool(architecture.full) and (i + 1) % architecture.full > 0 for i in range(layers)]
    rope = {"rope_theta": raw.get("rope.freq_base", 1e4), **_scaling(name, raw)}
    local = raw.get("rope.freq_base_swa", 1e4 if name.startswith("gemma3") else None)
    kinds = ("full_attention", "sliding_attention")
    ruled: dict[str, Any] = {"head_dim": head_dim, "sliding_window": window}
    ruled["rope_parameters"] = rope
    if window and any(in_window) and (name != "exaone4" or layers == 64):
        ruled["layer_types"] = [kinds[x] for x in in_window]
        if local:
            ruled["rope_parameters"] = {kinds[0]: rope, kinds[1]: {"rope_theta": local}}
    if architecture.large:
        ruled["query_pre_attn_scalar"] = width if layers == architecture.large else head_dim
    if name == "gemma2" and values.get("attn_logit_softcapping") is None:
        ruled["attn_logit_softcapping"] = 50.0
    if name == "llama4" and window != 0:
        ruled["layer_types"] = [(kinds[0], "chunked_attention")[x] for x in in_window]
        ruled["no_rope_layers"] = [int(x) for x in in_window]
        ruled["attention_chunk_size"] = values.get("attention_chunk_size") or 8192
        ruled["attn_temperature_tuning"] = True
        ruled["use_qk_norm"] = raw.get("expert_count") != 128
    if name == "smollm3":
        ruled["no_rope_layers"] = [int((i + 1) % 4 > 0) for i in range(layers)]
    if name == "command-r":
        ruled["use_qk_norm"] = layers >= 64
    if name == "deepseek2" and head_dim and (turned := values.get("rotary_dim")):
        ruled |= {"qk_rope_head_dim": turned, "qk_nope_head_dim": head_dim - turned}
    return ruled


def _scaling(name: str, raw: Fields) -> dict[str, Any]:
    """Return RoPE's rule for long contexts: a linear factor may stand there without its type.

    YaRN's `attn_factor` multiplies the usual amplitude, where `attention_factor` is the amplitude
    itself; of DeepSeek's models it is 1, and the scale has the square of 1 + multiplier·ln r.
    """
    kind, trained = raw.get("rope.scaling.type"), raw.get("rope.scaling.original_context_length")
    factor = _number(raw, "rope.scaling.factor") or _number(raw, "rope.scale_linear") or 1
    amplitude = _number(raw, "rope.scaling.attn_factor") or None
    if kind in (None, "none") and amplitude and trained:
        kind = "longrope"  # Phi-3's long contexts
    elif kind == "yarn" and name == "deepseek2":
        amplitude = 1.0
    elif kind == "yarn" and amplitude and factor > 0:
        amplitude *= 1 + 0.1 * math.log(factor)
    if kind in (None, "none") and factor == 1:
        return {}
    return {
        "rope_type": "linear" if kind in (None, "none") else kind,
        "factor": None if kind == "longrope" else factor,
        "original_max_position_embeddings": trained,
        "attention_factor": amplitude,
        "mscale_all_dim": 10 * _number(raw, "rope.scaling.yarn_log_multiplier"),
    }


def _take(file: BinaryIO, letters: str) -> tuple[Any, ...]:
    size = struct.calcsize(f"<{letters}")
    return struct.unpack(f"<{letters}", file.read(size))


def _skip(file: BinaryIO, size: int) -> None:
    """Go on by so many bytes.

    Raises:
        ValueError: the file is shorter.
        OverflowError: no file is as long.
    """
    if size:
        file.seek(size - 1, os.SEEK_CUR)
        if not file.read(1):
            raise ValueError


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
            next(left)
            values.append(_value(file, inner, left))
        return values
    if inner in _TYPES:
        _skip(file, size * struct.calcsize(f"<{_TYPES[inner]}"))
        return None
    for _ in range(size):
        next(left)
        _value(file, inner, left) if inner == _LIST else _text(file, keep=False)
    return None
