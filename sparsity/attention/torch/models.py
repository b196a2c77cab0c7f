"""Any model of the `transformers` library: loaded, and measured inside the calls that it makes."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.gguf_header import read_fields
from sparsity.attention.library import library, torch
from sparsity.attention.measurement.datasets import label_layers, measure_with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_queries
from sparsity.attention.measurement.layers import requested_names
from sparsity.attention.torch.call import Call, Output, Unseen, added_to_rows
from sparsity.attention.torch.interception import Interceptor
from sparsity.attention.torch.replay import compiled_calls
from sparsity.attention.torch.tiles import EveryRow, check_some_rows
from sparsity.checks import check_path, check_progress, check_reals, check_whole
from sparsity.errors import InputError
from sparsity.output import npy_file, refuse_missing, require_regular_file

__all__ = ["load", "measure_transformers"]

if TYPE_CHECKING:
    import xarray

# How names of what some models take beside a text begin.
_MORE_INPUTS = ("pixel_values", "input_values", "input_features", "visual_", "bbox")
_GIVE_WEIGHTS = "output_attentions and give these to measure(attention=…), or q and k"
_OWN_WAY = f"run it with {_GIVE_WEIGHTS}"
_FIX = "give the folder of a model, a GGUF file, or a name of the hub such as owner/name"
_TEXT = "give a file of text, or of token ids (.npy)"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def _check_ids(model: Any, tokens: Any) -> np.ndarray:
    """Return the ids of one text."""
    fix = "give the ids of one text, whole numbers [T]"
    ids = np.asarray(check_reals("tokens", tokens, fix))
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        raise InputError("tokens", f"array of {ids.dtype}, shape {ids.shape}", fix)
    try:
        count = model.get_input_embeddings().weight.shape[0]
    except (AttributeError, NotImplementedError):  # the model itself will tell
        count = int(ids.max()) + 1
    if ids.min() < 0 or ids.max() >= count:
        raise InputError("tokens", int(ids.max()), f"must be ids from 0 to {count - 1}")
    return ids.astype(np.int64)


def _refuse_model(model: Any) -> None:
    """Refuse what does not run on token ids alone, or not twice alike.

    Raises:
        InputError: no model of the library; of images or sound; with a decoder of its own; in
            training mode.
    """
    name = type(model).__name__
    of_library = ("set_attn_implementation", "main_input_name", "config")
    if not all(hasattr(model, attribute) for attribute in of_library):
        fix = "give a model of the transformers library, or q and k to measure()"
        raise InputError("model", name, fix)
    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    if main != "input_ids" and "input_ids" not in takes:  # some text models name another as main
        fix = f"takes {main}, not token ids; give a text model, or {_OWN_WAY}"
        raise InputError("model", name, fix)
    if "decoder_input_ids" in takes:
        fix = "is an encoder with a decoder, which read two texts; "
        fix += f"measure model.get_encoder(), or {_OWN_WAY}"
        raise InputError("model", name, fix)
    if any(part.training for part in model.modules()):
        fix = "is in training mode, where dropout is random; call model.eval() first"
        raise InputError("model", name, fix)


def _run(model: Any, ids: Any) -> None:
    """Run the model on one text, without a cache, and without scores of words where it can.

    Raises:
        InputError: its own code fails.
    """
    takes = inspect.signature(model.forward).parameters
    # Scores of the whole vocabulary at each token are a tenth of the time of a small model. By them
    # compiled code is held against what is computed again.
    less = "logits_to_keep" in takes and not compiled_calls(model)
    try:
        with torch.no_grad():
            model(input_ids=ids, use_cache=False, **({"logits_to_keep": 1} if less else {}))
    except InputError:
        raise
    except Exception as error:  # whatever the code of a model raises
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        what = f"could not be run on these {ids.shape[1]} token ids alone ({why})"
        beside = " and ".join(name for name in takes if name.startswith(_MORE_INPUTS))
        way = f"takes {beside} as well" if beside else "shorten the text"
        fix = f"{what}; {way}, or run it with all that it takes and {_GIVE_WEIGHTS}"
        raise InputError("model", type(model).__name__, fix) from error


def _to_numpy(x: Any) -> np.ndarray:
    """Return a tensor as NumPy has it, in single precision at least."""
    x = x.detach()
    return (x.float() if x.dtype.is_floating_point and x.itemsize < 4 else x).cpu().numpy()


def _layer(call: Call, causal: bool) -> Any:
    """Return a call for one text as a layer that `measure` measures.

    Raises:
        Unseen: its masks are functions.
    """
    length = call.query.shape[-2]
    if call.score_mod is not None or call.mask_mod is not None:
        raise Unseen("hides keys by a function: choose sdpa or eager for it")
    mask = None
    if call.mask is not None or call.bias is not None:
        at = torch.arange(length, device=call.query.device)[None]
        before = at >= at.mT if call.causal else torch.ones_like(at).bool()
        added, seen = added_to_rows(call, at, before.reshape(1, 1, -1, length).mT)
        mask = _to_numpy(torch.where(seen, added, -torch.inf)[0])
    return layer_of_queries(
        _to_numpy(call.query[0]),
        _to_numpy(call.key[0]),
        scale=call.scale,
        softcap=call.softcap,
        sink_logits=None if call.unit is None else _to_numpy(call.unit),
        causal=causal,
        mask=mask,
        segments=np.ones(length, int),  # whatever its mask hides, no token is padding
    )


def measure_transformers(
    model: Any,
    tokens: Any,
    *,
    sink: int | None = None,
    of: str | Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
) -> xarray.Dataset:
    """Measure the self-attention of a `transformers` model on one text, in one run of it.

    Every row of every call is measured beside the call, tile by tile, so that this takes little
    more time and memory than the run alone. Some rows of each call are computed again and must make
    what the call made. What theory says beside each row is added by `measurement.with_laws`, which
    takes as long again. What `of` names takes several times as long.

    Args:
        model: a model of the library, on any device and of any type, after `model.eval()`.
        tokens: token ids [T], as the model's tokenizer gives them.
        sink: position of the key that is looked at as a sink; None for the first in sight.
        of: what else to measure, as `sparsity.measure` has it; each layer is then measured by it,
            with laws.
        progress: called with (layers done, layers in all; 0 where the model does not say).

    Returns:
        As `sparsity.measure` but for the laws, with its `sink_logits` where there are learned
        sinks, and the path of each layer's module as the coordinate `module`.

    Raises:
        InputError: a model in training mode, one that does not run on token ids alone, or attention
            that is over another text, or that is not seen (`interception` says what is).
    """
    also = requested_names(of)
    check_progress(progress)
    _refuse_model(model)
    ids = torch.as_tensor(_check_ids(model, tokens))[None].to(model.device)
    sink = None if sink is None else check_whole("sink", sink, 0)
    if sink is not None and sink >= ids.shape[1]:
        raise InputError("sink", sink, f"must be a position from 0 to {ids.shape[1] - 1}")
    told = getattr(model.config, "num_hidden_layers", None)
    layers = told if isinstance(told, int) else 0  # LXMERT tells one number for each of its parts
    done = 0

    @torch.inference_mode()  # small operations of thousands of tiles: 6 % less
    def look(path: str, call: Call, made: Output) -> tuple[dict[str, np.ndarray], bool]:
        nonlocal done
        check_some_rows(call, made)
        rows = EveryRow(call, sink)
        causal = rows.looks_back
        stats = measure_with_laws(_layer(call, causal), sink, also) if also else rows.statistics()
        done += 1
        if progress is not None:
            progress(done, max(layers, done) if layers else 0)
        return stats, causal

    name = type(model).__name__
    with Interceptor(model, look) as calls:
        _run(model, ids)
    calls.note_silent_modules()
    if calls.unseen:
        path, reason = next(iter(calls.unseen.items()))
        way = "" if "measure(" in reason else f"; {_OWN_WAY}"
        raise InputError("model", name, f"{path} {reason}{way}")
    paths, pairs = zip(*calls.clear(), strict=True)
    if len({(x["S"].shape, x["importance"].shape, causal) for x, causal in pairs}) > 1:
        fix = "has layers of several kinds or sizes; "
        fix += f"run it with {_GIVE_WEIGHTS}, of one kind at a time"
        raise InputError("model", name, fix)
    causal, measured = pairs[0][1], [x for x, _ in pairs]
    # Models with learned sinks in some layers only: the others have a sink of weight 0.
    for layer in measured if any("learned_sink_mass" in x for x in measured) else ():
        layer.setdefault("learned_sink_mass", np.zeros_like(layer["S"]))
    attributes = {
        "title": "attention of a model, measured", "model": name,
        "measured_from": "queries and keys", "causal": int(causal), "sink": sink,
    }  # fmt: skip
    return label_layers(measured, attributes, {"module": paths})


def __dir__() -> list[str]:
    return sorted(__all__)


def load(model: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Return a causal language model in single precision, and its tokenizer.

    Raises:
        InputError: it is not there, or transformers cannot read it; a library is missing.
    """
    single, hf = torch.float32, library("transformers")
    path, named = check_path("model", model, _FIX), {}
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
        loaded = hf.AutoModelForCausalLM.from_pretrained(source, dtype=single, **named)
    except Exception as error:  # whatever transformers and its readers of files raise
        why = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        fix = f"cannot be read by transformers ({why}); {_FIX}"
        raise InputError("model", model, fix) from error
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
    path = require_regular_file(check_path("text", path, _TEXT), "text")
    refuse_missing("text", path, _TEXT)
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
