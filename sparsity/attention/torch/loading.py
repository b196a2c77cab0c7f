"""A model and its tokenizer by transformers: a folder, a name of the hub, or a GGUF file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from sparsity.attention.gguf_header import read_fields
from sparsity.attention.library import library
from sparsity.errors import InputError
from sparsity.output import npy_file, refuse_missing, require_regular_file

_FIX = "give the folder of a model, a GGUF file, or a name of the hub such as owner/name"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def load(model: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Return a causal language model in single precision, and its tokenizer.

    Raises:
        InputError: it is not there, or transformers cannot read it; a library is missing.
    """
    torch, hf = library("torch", "torch"), library("transformers")
    path, named = Path(model), {}
    if path.suffix == ".gguf":
        refuse_missing("model", require_regular_file(path, "model"), _FIX)
        library("gguf")
        source, named = path.parent, {"gguf_file": path.name}
    elif path.exists() or not _HUB_NAME.fullmatch(str(model)):
        refuse_missing("model", path, _FIX)
        if not path.is_dir():
            raise InputError("model", path, f"is not a model; {_FIX}")
        source = path
    else:
        source = str(model)
    hf.utils.logging.disable_progress_bar()
    try:
        tokenizer = hf.AutoTokenizer.from_pretrained(source, **named)
        loaded = hf.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **named)
    except Exception as error:  # whatever transformers and its readers of files raise
        why = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise InputError(
            "model", model, f"cannot be read by transformers ({why}); {_FIX}"
        ) from error
    if named:
        _split_digits(tokenizer, path)
    return loaded.eval(), tokenizer


def _split_digits(tokenizer: Any, path: Path) -> None:
    """Let the tokenizer of a GGUF file split numbers into digits, where the file says so.

    transformers reads the vocabulary and forgets that rule of SmolLM's tokenizer.
    """
    fields, _ = read_fields(path)  # the reader of `gguf` makes objects of all words of a vocabulary
    if fields.get("tokenizer.ggml.pre") == "smollm":
        parts = library("tokenizers").pre_tokenizers
        rules = [parts.Digits(individual_digits=True), parts.ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = parts.Sequence(rules)


def read_ids(path: str | os.PathLike[str], tokenizer: Any) -> np.ndarray:
    """Return the token ids of a text file, or those that a .npy file holds.

    Raises:
        InputError: a file that cannot be read, or without words.
    """
    path = require_regular_file(Path(path), "text")
    refuse_missing("text", path, "give a file of text, or of token ids (.npy)")
    if path.suffix == ".npy":
        try:
            return npy_file(path)
        except (ValueError, OSError):
            raise InputError("text", path, "holds no array of token ids") from None
    try:
        text = path.read_text("utf-8-sig")  # a byte order mark is no text
    except (OSError, UnicodeDecodeError):
        raise InputError("text", path, "is not text in UTF-8; give a plain text file") from None
    if not text.strip():
        raise InputError("text", path, "has no words; give another text")
    return np.asarray(tokenizer(text, add_special_tokens=False)["input_ids"])
