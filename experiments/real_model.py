"""The model that experiments look into, and their texts: what is on disk, and a random one.

The model is SmolLM2-135M-Instruct. `python -m benchmarks.model_files DIR` fetches it (98 MB), and
SPARSITY_MODEL=DIR says where it is. Texts are pages of Python's documentation and sources of its
modules, as the interpreter carries them; another version of Python has others, as hashes tell.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

from sparsity import InputError
from sparsity.attention.library import library
from sparsity.attention.torch.models import load

SMOLLM2 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # SHA-256 of its file
RANDOM = "random"  # stands for a hash where the model is `random_llama`
HASH = 12  # digits of a text's SHA-256 that are kept


@dataclass(frozen=True)
class Model:
    """A Llama of transformers and its tokenizer.

    Args:
        llama: the model.
        encode: text -> token ids, without those that begin a text.
        bos: the token that begins a text.
    """

    llama: Any
    encode: Callable[[str], Any]
    bos: int


@functools.lru_cache(maxsize=2)
def open_model(wanted: str) -> Model:
    """Open the model of that SHA-256, or the random one.

    Raises:
        InputError: it is not there.
    """
    if wanted == RANDOM:
        return random_llama()
    folder = os.environ.get("SPARSITY_MODEL", "")
    for path in sorted(Path(folder).glob("*.gguf")) if folder else ():
        if hashlib.sha256(path.read_bytes()).hexdigest() == wanted:
            llama, tokenizer = load(path)
            encode = functools.partial(tokenizer.encode, add_special_tokens=False)
            return Model(llama, encode, tokenizer.bos_token_id)
    fix = "must name the folder of SmolLM2-135M: `python -m benchmarks.model_files DIR` fetches it"
    raise InputError("SPARSITY_MODEL", folder, fix)


def random_llama() -> Model:
    """Return a Llama of two layers with random weights, whose tokens are bytes."""
    torch, hf = library("torch"), library("transformers")
    config = hf.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
        head_dim=8, intermediate_size=48, vocab_size=256, max_position_embeddings=64,
        bos_token_id=0, eos_token_id=1, rope_theta=500.0,
    )  # fmt: skip
    llama = hf.LlamaForCausalLM(config).eval()
    rng = np.random.default_rng(0)
    for parameter in llama.parameters():
        noise = rng.standard_normal(parameter.shape)
        wide = 1.7 * noise / parameter.shape[-1] ** 0.5 if noise.ndim == 2 else 1 + 0.2 * noise
        parameter.data = torch.as_tensor(wide, dtype=torch.float32)
        parameter.requires_grad_(False)
    return Model(llama, lambda text: list(text.encode()), 0)


def text_of(name: str) -> str:
    """Return a page of Python's documentation, pages joined by +, or the source of a module.py."""
    if name.endswith(".py"):
        return inspect.getsource(importlib.import_module(name.removesuffix(".py")))
    return "\n".join(topics[page] for page in name.split("+"))


def hash_of(name: str) -> str:
    """Return the first digits of the SHA-256 of a text."""
    return hashlib.sha256(text_of(name).encode()).hexdigest()[:HASH]
