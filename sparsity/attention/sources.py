"""What a configuration is: the file's fields, and what the family's class makes of them.

A published file leaves out what the class of `transformers` fills in, or names it as older releases
did: the file is not the configuration. The class is asked by `AutoConfig`'s own table: nothing is
downloaded, and no code that comes with a model runs. Without it, or for a family that nobody knows,
fields are read as they stand and no law is given.
"""

from __future__ import annotations

import copy
import importlib
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

from sparsity.attention import gguf_header
from sparsity.attention.families import BY_TYPE, UNKNOWN, Model, passed_over
from sparsity.attention.fields import (
    ASKED,
    FIELDS,
    FOR_CLASSES,
    LAYERS,
    LISTS,
    Fields,
    checked,
    names_set,
)
from sparsity.checks import check_path
from sparsity.errors import InputError, printable
from sparsity.output import json_file, refuse_missing, require_regular_file

MAX_BYTES = 2**22  # of a config.json: ten times the largest published one


def read_model(config: str | os.PathLike[str] | Mapping[str, Any]) -> Model:
    """Return the configuration in a file, in a folder that has one, or in a mapping of fields.

    Raises:
        InputError: there is none, or a field is out of its domain.
    """
    if isinstance(config, Mapping):
        return _of_fields(config)
    path = check_path("config", config, "give a config.json, its folder, or the fields themselves")
    path = path / "config.json" if path.is_dir() else path
    require_regular_file(path, "config")
    refuse_missing("config", path, "give a config.json or its folder")
    if path.suffix == ".gguf":
        return gguf_header.read_header(path)
    return _of_fields(_read_json(path))


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        content = json_file(path) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        fix = f"holds no configuration; give a config.json of at most {MAX_BYTES} bytes"
        raise InputError("config", path, fix)
    return content


def _of_fields(given: Mapping[str, Any]) -> Model:
    """Return the configuration of the fields of a `config.json`: of its text part, if it has one.

    Raises:
        InputError: a field is out of its domain, or the class refuses them together.
    """
    values, names, notes = checked(given), names_set(given), ()
    if not any(map(values.get, ("text_config", "hybrid_override_pattern", *LAYERS, *LISTS))):
        raise InputError("num_hidden_layers", None, "config has no num_hidden_layers")
    if part := values.get("text_config"):
        names, notes = names_set(given["text_config"]), ("its text part alone is described",)
        values = part if part.get("model_type") else values
    kind = values.get("model_type") or "unknown"
    if values.get("attn_type_list"):  # MiniMax-Text-01: 1 is softmax
        linear_or_full = ("linear_attention", "full_attention")
        values["layer_types"] = [linear_or_full[x == 1] for x in values["attn_type_list"]]
    rope = values.get("rope_scaling") or {}
    if rope.get("type") == "su":  # LongRoPE, as Phi-3 first named it
        rope["type"] = "longrope"
    fill = BY_TYPE.get(kind, UNKNOWN).fill
    filled = _filled(fill or kind, values, foreign=bool(fill))
    if filled is None:
        missing = "the file alone is not the configuration: pip install 'sparsity[transformers]'"
        lawless = missing if _library() is None else f"the family {kind!r} is not known here"
        return Model(kind, UNKNOWN, Fields(values, names), "the file alone", lawless, notes)
    model_type, of_class, known, source = filled
    for name in filter(values.get, LAYERS):
        if (count := of_class.get(name, values[name])) != values[name]:
            raise InputError(name, values[name], f"the layers that are listed are {count}")
    kind = kind if fill else model_type
    family = BY_TYPE.get(kind)
    lawless = family.weights if family else f"the family {kind!r} is not known here"
    passed = passed_over(kind) if family else frozenset[str]()
    fields = Fields(of_class, names, known | FOR_CLASSES, passed)
    return Model(kind, family or UNKNOWN, fields, source, lawless, notes)


@contextmanager
def _quietly() -> Iterator[None]:
    """Let nothing that the library warns of reach the user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _library() -> Any:
    """Return `transformers`; None where it is not there, or does not start."""
    try:
        with _quietly():
            library = importlib.import_module("transformers")
            return library if hasattr(library, "CONFIG_MAPPING") else None
    except Exception:  # noqa: BLE001  an import runs whatever its parts run
        return None


def _filled(
    kind: str, values: Mapping[str, Any], foreign: bool
) -> tuple[str, dict[str, Any], frozenset[str], str] | None:
    """Return what the class of a type makes of fields; None where there is none.

    That is the type of its text part, the values, the names that it knows, and who it is.

    A class keeps fields that it does not have; its code passes them over, and so does this.

    Args:
        kind: the type.
        values: the fields of the file.
        foreign: whether other code than that of the class uses them, so that all are kept.

    Raises:
        InputError: the class refuses the fields.
    """
    library = _library()
    if library is None or kind not in library.CONFIG_MAPPING:
        return None
    given = {name: value for name, value in values.items() if name != "model_type"}
    try:
        with _quietly():
            whole = library.AutoConfig.for_model(kind, **copy.deepcopy(given))
            text = whole.get_text_config(decoder=True)
            getattr(text, "standardize_rope_params", list)()  # as its model does where it is made
            cls = type(text)
            known = getattr(cls, "__dataclass_fields__", None) or signature(cls.__init__).parameters
            usual, sure = cls(), {*known, *ASKED}
            has = [x for x in FIELDS if foreign or x in sure or _attribute(usual, x) is not None]
            fields = checked({name: _attribute(text, name) for name in has}, strict=False)
        inner = fields.pop("attn_config", None) or {}  # MPT and DBRX keep them in a group
        if base := inner.pop("rope_theta", None):
            fields["rope_parameters"] = {**fields["rope_parameters"], "rope_theta": base}
        fields |= inner
        source = f"{cls.__name__} of transformers {library.__version__}"
        return text.model_type, fields, frozenset(known), source
    except Exception as error:  # noqa: BLE001  a class raises whatever its fields make it raise
        why = printable(str(error).splitlines()[-1].strip() if str(error) else repr(error), 200)
        raise InputError("config", kind, f"transformers refuses it: {why}") from None


def _attribute(config: Any, name: str) -> Any:
    """Return an attribute of a configuration, a part of it as a mapping; None if it has none."""
    try:
        value: Any = getattr(config, name, None)
        return value.to_dict() if hasattr(value, "to_dict") else value
    except Exception:  # noqa: BLE001  an attribute may be a property
        return None
