"""Text to token ids, by the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsity.errors import InputError
from sparsity.models.checkpoint import library, refusal


@dataclass(frozen=True)
class Tokenizer:
    """Text to token ids, nothing added, and ids to the words of the vocabulary.

    Args:
        own: the tokenizer of the library.
    """

    own: Any

    def __call__(self, text: str) -> list[int]:
        """The ids."""
        return self.own.encode(text, add_special_tokens=False).ids

    def words(self, ids: Iterable[int]) -> list[str]:
        """Each token as the vocabulary spells it: a space before it as Ġ, "" for an unknown id."""
        return [self.own.id_to_token(int(i)) or "" for i in ids]


_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def from_file(path: Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json; nothing is added to the text.

    Raises:
        InputError: it cannot be read.
    """
    tokenizers = library("tokenizers")
    if not path.is_file():
        raise InputError("model", path, "is missing; put the tokenizer beside the weights")
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  the library raises no class of its own
        raise refusal(path, error) from None
    return Tokenizer(tokenizer)


def bpe(
    path: Path,
    *,
    kind: str,
    pre: str,
    tokens: Sequence[str],
    merges: Sequence[str],
    whole: Sequence[str] = (),
) -> Tokenizer:
    """A byte-level BPE tokenizer as GGUF files carry it.

    Args:
        path: the file; where its tokenizer is of another kind, a tokenizer.json beside it is taken.
        kind: "gpt2" for byte-level BPE.
        pre: how text is cut before merging: "smollm" takes digits one by one.
        tokens: the vocabulary, by id.
        merges: pairs with a space between, first ones first.
        whole: tokens that are found in a text as they are, before it is cut: markers of a chat.

    Raises:
        InputError: another kind of tokenizer, and no tokenizer.json.
    """
    tokenizers = library("tokenizers")
    cut = tokenizers.pre_tokenizers
    pieces = {
        "smollm": [cut.Digits(individual_digits=True), cut.ByteLevel(add_prefix_space=False)],
        "default": [cut.ByteLevel(add_prefix_space=False)],
        "gpt-2": [cut.ByteLevel(add_prefix_space=False)],
        "llama-bpe": [
            cut.Split(tokenizers.Regex(_LLAMA3), "isolated"),
            cut.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    }
    if kind != "gpt2" or pre not in pieces:
        beside = path.with_name("tokenizer.json")
        if beside.is_file():
            return from_file(beside)
        fix = f"has a tokenizer ({kind}, {pre}) not known here; put its tokenizer.json beside it"
        raise InputError("model", path, fix)
    try:
        model = tokenizers.models.BPE(
            vocab={token: i for i, token in enumerate(tokens)},
            merges=[tuple(pair.split(" ", 1)) for pair in merges],
            ignore_merges=pre == "llama-bpe",
        )
    except Exception as error:  # noqa: BLE001  the library raises no class of its own
        raise refusal(path, error) from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = cut.Sequence(pieces[pre])
    tokenizer.add_special_tokens([tokenizers.AddedToken(x, normalized=False) for x in whole])
    return Tokenizer(tokenizer)


def read_text(path: Path) -> str:
    """A text file.

    Raises:
        InputError: not there, not UTF-8, or nothing in it.
    """
    try:
        text = path.read_text("utf-8-sig")  # a byte order mark is no text
    except OSError as error:
        raise InputError("text", path, str(refusal(path, error)).split(": ", 1)[1]) from None
    except UnicodeDecodeError:
        raise InputError("text", path, "is not text in UTF-8; give a plain text file") from None
    if not text.strip():
        raise InputError("text", path, "has no words; give another text")
    return text
