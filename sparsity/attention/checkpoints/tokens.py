"""Text to token ids, by the `tokenizers` library in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sparsity.attention.checkpoints import tokenizing
from sparsity.attention.checkpoints.checkpoint import library, refusal
from sparsity.errors import InputError
from sparsity.output import require_regular_file

# NFKC and NFKD make at most 33 bytes of 3 (U+FDFA), and a byte-level vocabulary without merges
# has a token for each. What makes more of a text is a normaliser that grows it without end.
_MAX_TOKENS_PER_BYTE = 11


class Tokenizer:
    """A tokenizer turns text into token ids, adding none, and ids into words of the vocabulary.

    The library works in a process of its own: `tokenizing` says why.

    Args:
        path: the model, for refusals; where `content` is None, the tokenizer.json.
        content: what a tokenizer.json would hold, for a model that has none.

    Raises:
        InputError: it cannot be read, or cuts texts at random (BPE dropout).
    """

    def __init__(self, path: Path, content: dict[str, Any] | None = None) -> None:
        library("tokenizers")
        self._path, self._lock = path, threading.Lock()
        source = "-" if content is not None else os.fspath(path.absolute())
        own = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAYON_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            # -P: else the modules beside the script would stand before all others of their names.
            [sys.executable, "-P", tokenizing.__file__, source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where the library tells of its own failures
            env=os.environ | own,
            start_new_session=True,  # Ctrl-C is for this process, whose end ends the other
        )
        # Not a method: the finalizer must not hold the object that it waits for.
        weakref.finalize(self, _end, self._process)
        said = self._ask(*(() if content is None else (content,)))
        if said["dropout"]:
            fix = f"has a tokenizer with dropout = {said['dropout']}, which draws lots; set it to 0"
            raise InputError("model", path, fix)

    def _ask(self, *question: Any) -> Any:
        """Write a question, if one is given, and return what the process answers.

        Raises:
            InputError: the process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            with self._lock:  # threads share the process: an answer belongs to the last question
                for each in question:
                    stdin.write(json.dumps(each).encode() + b"\n")
                    stdin.flush()
                line = stdout.readline()
        except OSError:
            line = b""
        if not line:
            fix = "has a tokenizer that is damaged, or takes too much memory or time"
            raise InputError("model", self._path, f"{fix}; download it again")
        return json.loads(line)

    def __call__(self, text: str) -> list[int]:
        """Return the token ids of a text.

        Raises:
            InputError: the tokenizer fails, or makes much more of a text than it is.
        """
        ids = self._ask(text)
        if len(ids) > _MAX_TOKENS_PER_BYTE * len(text.encode("utf-8", "surrogatepass")):
            fix = f"has a tokenizer that makes more than {_MAX_TOKENS_PER_BYTE} tokens of a byte"
            raise InputError("model", self._path, f"{fix}; give another model")
        return ids

    def words(self, ids: Iterable[int]) -> list[str]:
        """Return tokens as the vocabulary spells them: Ġ for a space before, "" for unknown ids."""
        words = self._ask([int(i) for i in ids])
        return [word.replace("\0", "␀") for word in words]  # netCDF ends a text there


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()


# How Llama 3 cuts a text before merging, from its tokenizer.json: contractions, words, up to three
# digits, punctuation, line ends, spaces.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def from_file(path: Path) -> Tokenizer:
    """Return the tokenizer of a tokenizer.json.

    Raises:
        InputError: it cannot be read.
    """
    if not require_regular_file(path, "model").exists():
        raise InputError("model", path, "is missing; put the tokenizer beside the weights")
    try:
        path.open("rb").close()
    except OSError as error:
        raise refusal(path, error) from None
    return Tokenizer(path)


def bpe(
    path: Path,
    *,
    kind: str,
    pre: str,
    tokens: Sequence[str],
    merges: Sequence[str],
    whole: Sequence[str] = (),
) -> Tokenizer:
    """Return the byte-level BPE tokenizer that a GGUF file carries.

    The file names the rule by which a text is cut before merging and does not hold it, so that each
    rule must be known here.

    Args:
        path: the file; where its tokenizer is of another kind, a tokenizer.json beside it is taken.
        kind: the kind of tokenizer; "gpt2" is byte-level BPE.
        pre: the name of the rule by which a text is cut: "smollm" takes digits one by one.
        tokens: the vocabulary, by id.
        merges: pairs with a space between, those merged first first.
        whole: tokens that are found in a text as they are, before it is cut: markers of a chat.

    Raises:
        InputError: another kind of tokenizer, and no tokenizer.json.
    """
    bytes_of = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    alone = bytes_of | {"use_regex": True}
    digits = {"type": "Digits", "individual_digits": True}
    split = {"type": "Split", "pattern": {"Regex": _LLAMA3}, "behavior": "Isolated"}
    pieces = {
        "smollm": [digits, alone],
        "default": [alone],
        "gpt-2": [alone],
        "llama-bpe": [split | {"invert": False}, bytes_of | {"use_regex": False}],
    }
    if kind != "gpt2" or pre not in pieces:
        beside = path.with_name("tokenizer.json")
        if beside.is_file():
            return from_file(beside)
        fix = f"has a tokenizer ({kind:.40}, {pre:.40}) not known here; put its tokenizer.json"
        raise InputError("model", path, f"{fix} beside it")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    marker = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    model = {
        "type": "BPE",
        "vocab": vocabulary,
        "merges": [pair.split(" ", 1) for pair in merges],
        # Llama 3 takes a word that is a token as it is, also where merges would not lead there.
        "ignore_merges": pre == "llama-bpe",
    }
    return Tokenizer(
        path,
        {
            "version": "1.0",
            "added_tokens": [
                {"id": vocabulary[x], "content": x, "special": True, **marker} for x in whole
            ],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces[pre]},
            "model": model,
        },
    )


def read_text(path: Path) -> str:
    """Return the content of a text file.

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
