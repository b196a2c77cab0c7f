"""`sparsity measure` on a tiny model that transformers saved: its files, and refusals."""

import json
import re

import numpy as np
import pytest
import xarray

from sparsity.attention.library import library
from sparsity.attention.torch.models import load, measure_transformers

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

TEXT = "the hand and the band, 1212 times: the end. " * 6
T = 70


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Llama of two layers whose tokens are bytes."""
    torch, hf, parts = library("torch"), library("transformers"), library("tokenizers")
    torch.manual_seed(0)
    alphabet = sorted(parts.pre_tokenizers.ByteLevel.alphabet())
    tokens = parts.Tokenizer(parts.models.BPE({x: i for i, x in enumerate(["<s>", *alphabet])}, []))
    tokens.pre_tokenizer = parts.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model = hf.LlamaForCausalLM(
        hf.LlamaConfig(
            hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=257, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    for parameter in model.parameters():
        parameter.data *= 3
    place = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(place)
    hf.PreTrainedTokenizerFast(tokenizer_object=tokens, bos_token="<s>").save_pretrained(place)
    return place


def test_texts_become_a_file_a_table_a_picture_and_a_page(folder, tmp_path, command):
    texts, out = tmp_path / "texts", tmp_path / "out.nc"
    texts.mkdir()
    (texts / "a.txt").write_text(TEXT)
    np.save(texts / "b.npy", np.arange(200) % 97)
    (texts / "short.txt").write_text("the end")
    line = "measure", folder, texts, "--tokens", T, "--out", out
    code, shown, err = command(*line, "--json", "--report", tmp_path / "page")
    assert code == 0, err
    found = json.loads(shown)
    assert [row["text"] for row in found["texts"]] == ["a", "b"]
    assert [row["T"] for row in found["table"]] == [64, T]
    assert "has 7 tokens of 70" in found["passed_over"][0]
    with xarray.open_dataset(out) as data:
        model, tokenizer = load(folder)
        own = measure_transformers(model, tokenizer.encode(TEXT)[:T])
        np.testing.assert_array_equal(data.n_eff.sel(text="a"), own.n_eff)
        assert {"S_exact", "S_without_sinks", "token"} <= set(data)
    assert (tmp_path / "out.svg").read_text().startswith("<?xml")
    assert "Four of five heads" in (tmp_path / "page" / "index.html").read_text()
    code, shown, _ = command(*line, "--bos")
    assert code == 0
    assert "after the model's first token" in shown
    with xarray.open_dataset(out) as data:
        assert data.token.sel(text="a").values[..., 0] == "<s>"


def test_what_cannot_be_measured_is_refused_in_one_line(folder, tmp_path, command):
    text, out = tmp_path / "a.txt", tmp_path / "o.nc"
    text.write_text(TEXT)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(60))
    for given, words in (
        ((tmp_path / "none.gguf", text), "model = .*none.gguf"),
        ((tmp_path / "bad.gguf", text), "cannot be read by transformers"),
        ((tmp_path, text), "cannot be read by transformers"),
        ((text, text), "give the folder of a model"),
        ((folder, tmp_path / "none.txt"), "no such file"),
        ((folder, text, "--tokens", 1), "tokens = 1"),
        ((folder, text, "--of", "nothing"), "of = nothing"),
        ((folder, text, "--tokens", 5000), "none can be used"),
    ):
        code, shown, err = command("measure", *given, "--out", out)
        assert (code, shown, len(err.splitlines())) == (2, "", 1), (given, err)
        assert re.search(words, err), (given, err)
    assert not out.exists()
