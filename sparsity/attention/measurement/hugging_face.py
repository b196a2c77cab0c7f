"""Any model of the `transformers` library, measured in the attention functions that it calls."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.measurement.datasets import label_layers, measure_with_laws
from sparsity.attention.measurement.layer_inputs import layer_of_queries
from sparsity.attention.measurement.requested import requested_names
from sparsity.attention.measurement.returned_weights import (
    NO_WEIGHTS,
    measure_returned,
    record_outputs,
)
from sparsity.attention.measurement.torch_attention import (
    Call,
    outputs_agree,
    to_numpy,
    watch_calls,
)
from sparsity.errors import InputError

if TYPE_CHECKING:
    import xarray

# What some models take beside a text.
_MORE_INPUTS = (
    *("pixel_values", "input_values", "input_features"),
    *("visual_feats", "visual_pos", "bbox"),
)
_IMPLEMENTATIONS = ("sdpa", "eager")  # tried where the model's own functions are not understood
_GIVE_WEIGHTS = "output_attentions and give these to measure(attention=…), or q and k"
_OWN_WAY = f"run it with {_GIVE_WEIGHTS}"
_GIVE_QK = "give q and k to measure()"


def _check_ids(model: Any, tokens: Any) -> np.ndarray:
    """Return the ids of one text."""
    try:
        ids = np.asarray(tokens)
    except ValueError:
        ids = np.empty((0, 0))
    if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
        fix = "give the ids of one text, whole numbers [T]"
        raise InputError("tokens", f"array of {ids.dtype}, shape {ids.shape}", fix)
    try:
        count = model.get_input_embeddings().weight.shape[0]
    except (AttributeError, NotImplementedError):  # the model itself will tell
        count = int(ids.max()) + 1
    if ids.min() < 0 or ids.max() >= count:
        raise InputError("tokens", int(ids.max()), f"must be ids from 0 to {count - 1}")
    return ids.astype(np.int64)


def _is_of_library(model: Any) -> bool:
    """Return whether it is a model of `transformers`: some have parts that are plain modules."""
    needed = ("set_attn_implementation", "main_input_name", "config")
    return all(hasattr(model, name) for name in needed)


def _refuse_model(model: Any) -> None:
    """Refuse what does not run on token ids alone, or not twice alike.

    Raises:
        InputError: no model of the library; of images or sound; with a decoder of its own; in
            training mode.
    """
    name = type(model).__name__
    if not _is_of_library(model):
        fix = f"give a model of the transformers library, or {_GIVE_QK}"
        raise InputError("model", name, fix)
    takes = inspect.signature(model.forward).parameters
    main = model.main_input_name
    if main != "input_ids" and "input_ids" not in takes:  # some text models name another as main
        fix = f"takes {main}, not token ids; give a text model, or {_OWN_WAY}"
        raise InputError("model", name, fix)
    if "decoder_input_ids" in takes:
        fix = "is an encoder with a decoder, which read two texts; "
        if all(_is_of_library(x) for x in (model.get_encoder(), model.get_decoder())):
            fix += f"measure model.get_encoder(), or model.get_decoder() alone, or {_GIVE_QK}"
        else:
            fix += _OWN_WAY
        raise InputError("model", name, fix)
    if any(part.training for part in model.modules()):
        fix = "is in training mode, where dropout is random; call model.eval() first"
        raise InputError("model", name, fix)


def _run(model: Any, ids: Any, **more: Any) -> Any:
    """Return what the model gives for one text, without a cache.

    Raises:
        InputError: its own code fails.
    """
    torch = library("torch", "torch")
    try:
        with torch.no_grad():
            return model(input_ids=ids, use_cache=False, **more)
    except InputError:
        raise
    except Exception as error:  # whatever the code of a model raises
        why = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        takes = inspect.signature(model.forward).parameters
        beside = [name for name in _MORE_INPUTS if name in takes]
        fix = "shorten the text"
        if beside:
            fix = f"takes {' and '.join(beside)} as well; give its text model, if it has one"
        what = f"could not be run on these {ids.shape[1]} token ids alone ({why})"
        fix = f"{what}; {fix}, or run it with all that it takes and {_GIVE_WEIGHTS}"
        raise InputError("model", type(model).__name__, fix) from error


@contextmanager
def _implemented(model: Any, implementation: str | None) -> Iterator[None]:
    """Give all parts of the model that implementation of attention; afterwards each has its own.

    Raises:
        ValueError: the model does not have it.
    """
    # The parts of a composite model have configurations of their own, which `set_attn_…` changes
    # too and does not put back.
    configs, kept = [part.config for part in model.modules() if hasattr(part, "config")], []
    while configs:  # those of parts after those that hold them, which set theirs as well
        config = configs.pop(0)
        if hasattr(config, "_attn_implementation") and not any(config is x for x, _ in kept):
            kept.append((config, config._attn_implementation))
            configs += [getattr(config, name, None) for name in config.sub_configs or ()]
    try:
        if implementation is not None:
            model.set_attn_implementation(implementation)
        yield
    finally:
        for config, own in kept:
            config._attn_implementation = own


class _MeasuredCalls:
    """The calls of attention in one run, each measured as a layer with the path of its module.

    A call that softmax does not explain ends all measuring of the run (`understood`): a dataset of
    the other layers alone would pass for the model.
    """

    def __init__(self, model: Any, sink: int | None, of: Sequence[str]) -> None:
        self.layers: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.understood, self.ways = True, set()
        self._name, self._sink, self._of = type(model).__name__, sink, of
        self._names = {part: name for name, part in model.named_modules()}
        self._last: Call | None = None

    def look(self, call: Call) -> None:
        """Measure a call, if it is softmax of q·k.

        Raises:
            InputError: it is over another text, or unlike the others.
        """
        cached = call.given.get("cache") is not None
        if cached or call.query.shape[2] != call.key.shape[2]:
            what = "takes a cache" if cached else "looks at another text"
            fix = f"{what}; only attention over the text itself is measured; {_OWN_WAY}"
            raise InputError("model", type(call.module).__name__, fix)
        self.understood = self.understood and call.explained()
        if not self.understood:
            return
        # Differential attention calls the function once for each half of the values: the second
        # call has the same weights, and counting it would make one layer two.
        last, self._last = self._last, call
        if last is not None and last.same_rows(call):
            return
        self.ways.add((call.query.shape[1], call.looks_back()))
        if len(self.ways) > 1:
            fix = "has layers of several kinds or sizes; give q and k of each kind to measure()"
            raise InputError("model", self._name, fix)
        added, learned = call.added(), call.given.get("s_aux")
        q, k = (to_numpy(x[0]) for x in (call.query, call.key))
        layer = layer_of_queries(
            q,
            k,
            scale=call.given.get("scaling"),
            softcap=call.given.get("softcap"),
            sink_logits=None if learned is None else to_numpy(learned),
            causal=call.looks_back(),
            mask=None if added is None else to_numpy(added),
            segments=np.ones(q.shape[1], int),  # whatever its mask hides, no token is padding
        )
        self.layers.append(measure_with_laws(layer, self._sink, self._of))
        self.paths.append(self._names[call.module])


def _from_calls(
    model: Any, ids: Any, own: Any, sink: int | None, of: Sequence[str]
) -> _MeasuredCalls | None:
    """Return the layers of a model that calls attention functions of the library or of its file.

    Where what these give is not softmax of the q, k and masks that they take, another
    implementation is tried.

    Args:
        model: the model.
        ids: of the text.
        own: what it gives for them.
        sink: position of the sink key.
        of: what else to measure.

    Returns:
        None where it makes no such call, or none that is understood.

    Raises:
        InputError: two runs of the model differ; attention over another text.
    """
    # The model's own implementation comes first. One that shows nothing, or gives what softmax of
    # its arguments does not, may be explained under "sdpa" or "eager"; but then the whole output
    # must be the same, or another attention would be measured than the model has.
    for implementation in (None, *_IMPLEMENTATIONS):
        seen = _MeasuredCalls(model, sink, of)
        try:
            with _implemented(model, implementation), watch_calls(model, seen.look):
                again = _run(model, ids)
        except (ValueError, ImportError):  # it has no such implementation
            if implementation is None:
                raise
            continue
        same = outputs_agree(again, own)
        if implementation is None and not same:
            fix = "gives another output when it runs again; make it deterministic, or choose "
            fix += "another attention by model.set_attn_implementation()"
            raise InputError("model", type(model).__name__, fix)
        if not seen.layers and seen.understood:  # no call at all: no other will make one
            return None
        if same and seen.understood:
            return seen
    return None


def _from_weights(
    model: Any, ids: Any, own: Any, sink: int | None, of: Sequence[str]
) -> tuple[list[dict[str, Any]], list[str], bool]:
    """Return the layers of a model with attention of its own, as `measure_returned` has them.

    Raises:
        InputError: it returns no weights, or others than those that it runs with.
    """
    name = type(model).__name__
    try:
        with _implemented(model, "eager"), record_outputs(model) as found:
            again = _run(model, ids, output_attentions=True)
    except ValueError as error:
        fix = f"did not ask the library for its attention function, nor return weights; {_OWN_WAY}"
        raise InputError("model", name, fix) from error
    # Hybrids return None for layers without attention.
    layers = [x for x in getattr(again, "attentions", None) or () if x is not None]
    if not layers:
        fix = (
            f"calls no attention function that is softmax of q·k, nor returns weights; {NO_WEIGHTS}"
        )
        raise InputError("model", name, fix)
    if not outputs_agree(again, own):
        fix = "runs another attention when it returns weights; load it with "
        raise InputError("model", name, fix + "attn_implementation='eager'")
    return measure_returned(model, layers, found, sink, of)


def measure_transformers(
    model: Any, tokens: Any, *, sink: int | None = None, of: str | Sequence[str] = ()
) -> xarray.Dataset:
    """Measure the self-attention of a `transformers` model on one text.

    The model runs twice. In the second run q, k, scale and mask of each call of an attention
    function are measured; the weights that they make must give the function's own output, and the
    run the output of the first, each up to `torch_attention.TOLERANCE` and roundings of its type.
    A model with an attention of its own (Bloom) is measured by the weights that it returns, which
    must be weights, from a run that must give the same output.

    Args:
        model: a model of the library, on any device and of any type, after `model.eval()`.
        tokens: token ids [T], as the model's tokenizer gives them.
        sink: position of the key that is looked at as a sink; None for the first in sight.
        of: what else to measure, as `sparsity.measure` has it.

    Returns:
        As `sparsity.measure`, with its `sink_logits` where there are learned sinks, and the path of
        each layer's module as the coordinate `module`.

    Raises:
        InputError: a model in training mode, one that does not run on token ids alone, or attention
            that is over another text, or that the model does not show.
    """
    also = requested_names(of)
    torch = library("torch", "torch")
    _refuse_model(model)
    ids = torch.as_tensor(_check_ids(model, tokens))[None].to(model.device)
    own = _run(model, ids)
    seen = _from_calls(model, ids, own, sink, also)
    attributes = {"title": "attention of a model, measured", "model": type(model).__name__}
    attributes["measured_from"] = "queries and keys" if seen else "attention weights"
    if seen:
        layers, paths, ((_, causal),) = seen.layers, seen.paths, seen.ways
        # Models with learned sinks in some layers only: the others have a sink of weight 0.
        for layer in layers if any("learned_sink" in layer for layer in layers) else ():
            layer.setdefault("learned_sink", np.zeros_like(layer["S"]))
    else:
        layers, paths, causal = _from_weights(model, ids, own, sink, also)
    attributes |= {"sink": None if sink is None else int(sink), "causal": int(causal)}
    return label_layers(layers, attributes, {"module": paths})
