"""QK-norm with gains: γ, the bound and the law, from whole queries and keys and from weights."""

import json

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from sparsity import InputError, QKNorm, Row, describe, exact
from sparsity.attention.checkpoints.checkpoint import library

D = 8
RNG = np.random.default_rng(11)
G_Q, G_K = RNG.uniform(0.4, 3.0, (2, D))


def normed(x):
    """RMS-normalised vectors, as the models have them."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True))


def scores(q, k, scale, g_q=G_Q, g_k=G_K):
    return scale * ((g_q * normed(q))[..., None, :] * (g_k * normed(k))).sum(-1)


FUNCTIONS = {
    "exp": np.exp,
    "sigmoid": lambda s: 1 / (1 + np.exp(-s)),
    "relu2": lambda s: np.maximum(s, 0) ** 2,
}


@pytest.mark.parametrize("kernel", FUNCTIONS)
@pytest.mark.parametrize("number", range(3))
def test_the_law_of_one_query_is_exact(kernel, number):
    """n_eff of rows of whole normalised keys; the normal law and a γ off by 1 % are rejected."""
    n, rows, scale = 12, 200_000, 0.6
    rng = np.random.default_rng(number)
    query = rng.standard_normal(D) * rng.uniform(0.1, 5)  # its own length does not matter
    own = QKNorm.from_gains(G_Q, G_K, scale, query=query)
    a = FUNCTIONS[kernel](scores(query, rng.standard_normal((rows, n, D)), scale))
    live = a.any(1)
    values = a[live].sum(1) ** 2 / (a[live] ** 2).sum(1)
    mean, error = values.mean(), values.std() / np.sqrt(len(values))
    parameters = {} if kernel == "exp" else {"beta": 0.0}
    law = float(exact(Row(kernel, **parameters, steps=(own,)), length=n))
    assert abs(mean - law) < 4.5 * error
    if kernel == "exp":
        for wrong in (
            Row("exp", gamma=own.gamma),
            Row("exp", gamma=1.01 * float(own.gamma), steps=(own,)),
        ):
            assert abs(mean - float(exact(wrong, length=n))) > 6 * error


def test_gamma_is_the_root_mean_square_over_queries():
    rng, many, scale = np.random.default_rng(5), 400_000, 0.5
    law = QKNorm.from_gains(G_Q, G_K, scale)
    assert law.gamma == pytest.approx(scale * np.sqrt(((G_Q * G_K) ** 2).sum()), rel=1e-14)
    q, k = (normed(x) for x in rng.standard_normal((2, many, D)))
    pairs = scale * (G_Q * q * G_K * k).sum(-1)
    error = (pairs**2).std() / np.sqrt(many)
    assert abs((pairs**2).mean() - float(law.gamma) ** 2) < 4.5 * error
    assert abs((pairs**2).mean() - (scale * D**0.5 * (G_Q * G_K).max()) ** 2) > 10 * error
    own = [QKNorm.from_gains(G_Q, G_K, scale, query=x).gamma for x in q[:4000]]
    assert np.mean(np.square(own)) == pytest.approx(float(law.gamma) ** 2, rel=0.05)
    assert np.std(own) > 0.1 * float(law.gamma)  # of gains that differ, queries have their own γ
    flat = [QKNorm.from_gains(np.full(D, 1.5), np.ones(D), query=x).gamma for x in q[:9]]
    np.testing.assert_allclose(flat, 1.5, rtol=1e-14)
    assert QKNorm.from_gains(np.ones(64), np.ones(64)).gamma == pytest.approx(1.0, rel=1e-14)


def test_the_bound_holds_and_is_reached():
    rng, scale = np.random.default_rng(6), 0.5
    law = QKNorm.from_gains(G_Q, -G_K, scale)
    assert law.bound == pytest.approx(scale * D * (G_Q * G_K).max(), rel=1e-14)
    q, k = rng.standard_normal((2, 200_000, D)) ** 5  # near the axes, where scores are large
    found = np.abs(scale * (G_Q * normed(q) * -G_K * normed(k)).sum(-1))
    assert np.all(found <= float(law.bound) * (1 + 1e-12))
    assert found.max() > 0.9 * float(law.bound)
    axis = np.eye(D)[np.argmax(G_Q * G_K)]
    assert abs(scores(axis, axis, scale)) == pytest.approx(law.bound, rel=1e-12)
    own = QKNorm.from_gains(G_Q, G_K, scale, query=q[0])
    best = G_Q * normed(q[0]) * G_K
    assert scores(q[0], best, scale) == pytest.approx(own.bound, rel=1e-12)
    assert float(own.bound) == pytest.approx(float(own.gamma) * D**0.5, rel=1e-14)
    assert float(own.bound) <= float(law.bound)


def test_rotary_positions_keep_the_law_of_equal_gains_in_a_plane():
    """Planes (i, i + d/2): the spread of v = c·g_k∘R(g_q q̂) at any distance."""
    rng = np.random.default_rng(7)
    g_q, g_k = G_Q, np.tile(G_K[: D // 2], 2)
    query = normed(rng.standard_normal(D))
    turned = (g_q * query)[: D // 2] + 1j * (g_q * query)[D // 2 :]
    for m in (0, 1, 17):
        z = turned * np.exp(1j * m * 100.0 ** (-np.arange(D // 2) / (D // 2)))
        v = g_k * np.concatenate([z.real, z.imag])
        own = QKNorm.from_gains(g_q, g_k, query=query)
        assert np.linalg.norm(v) / D**0.5 == pytest.approx(own.gamma, rel=1e-13)


def test_a_row_takes_the_gamma_of_gains_unless_it_has_one():
    law = QKNorm.from_gains(G_Q, G_K)
    assert Row("exp", steps=(law,)).gamma == law.gamma
    assert Row("exp", gamma=2.0, steps=(law,)) == Row("exp", gamma=2.0, steps=(QKNorm(D),))
    row = Row("exp", steps=(law,))
    assert eval(repr(row), {"Row": Row, "QKNorm": QKNorm}) == row
    assert row.described()["steps"] == [f"qk-norm:{D}"]
    for make, match in (
        (lambda: QKNorm.from_gains(G_Q, G_K[1:]), "g_k"),
        (lambda: QKNorm.from_gains(G_Q, 0 * G_K), "all g_q·g_k are 0"),
        (lambda: QKNorm.from_gains(G_Q, G_K, 0.0), "scale = 0"),
        (lambda: QKNorm.from_gains(G_Q, G_K, query=0 * G_Q), "query"),
        (lambda: QKNorm.from_gains([np.nan], [1.0]), "g_q"),
        (lambda: QKNorm(8, -1.0), "gamma = -1"),
    ):
        with pytest.raises(InputError, match=match):
            make()


def config(model_type, layers=3, heads=4, **fields):
    return {
        "model_type": model_type, "num_hidden_layers": layers, "num_attention_heads": heads,
        "hidden_size": heads * D, "head_dim": D, "max_position_embeddings": 64, "rope_theta": 1e4,
        **fields,
    }  # fmt: skip


def stored(layers, prefix="model", less=0.0, width=D):
    """Gains of each layer, and their tensors with `less` taken off."""
    rng = np.random.default_rng(3)
    gains = rng.uniform(0.5, 2.0, (layers, 2, width))
    names = {
        f"{prefix}.layers.{i}.self_attn.{which}_norm.weight": (gains[i, j] - less).astype("f")
        for i in range(layers)
        for j, which in enumerate("qk")
    }
    return gains.astype("f").astype(float), names


@pytest.mark.parametrize(("family", "less"), [("qwen3", 0.0), ("gemma3_text", 1.0)])
def test_describe_reads_gains_beside_the_configuration(family, less, tmp_path):
    gains, tensors = stored(3, less=less)
    (tmp_path / "config.json").write_text(json.dumps(config(family)))
    assert describe(tmp_path).gamma == (pytest.approx(1.0),)  # no weights yet: unit gains
    save_file(tensors, tmp_path / "model-00001-of-00001.safetensors")
    wanted = np.sqrt(((gains[:, 0] * gains[:, 1]) ** 2).sum(-1)) / D**0.5
    for source in (tmp_path, tmp_path / "config.json"):
        found = describe(source, lengths=(64, 512))
        assert found.gamma == (pytest.approx(np.median(wanted), rel=1e-6),)
        row = Row("exp", gamma=found.gamma[0], scores=QKNorm(D))
        assert found.rows == (row,)
        assert found.n_eff[0, 1] == float(exact(row, length=512))
        assert (
            abs(found.n_eff[0, 1] / float(exact("exp", gamma=found.gamma[0], length=512)) - 1)
            > 0.05
        )
        (note,) = (note for note in found.notes() if "gains" in note)
        assert f"median {np.median(wanted):.3g}" in note
        assert f"|s| ≤ {D**0.5 * (gains[:, 0] * gains[:, 1]).max():.3g}" in note
    assert describe(tmp_path, gamma=2.0).gamma == (2.0,)
    (tmp_path / "x.safetensors").write_bytes(b"none")
    with pytest.raises(InputError, match="weights that cannot be read"):
        describe(tmp_path)


def test_gains_of_other_norms_are_not_taken_for_those_of_a_head(tmp_path):
    _, tensors = stored(3, width=4 * D)
    (tmp_path / "config.json").write_text(json.dumps(config("olmo2")))
    save_file(tensors, tmp_path / "model.safetensors")
    found = describe(tmp_path)
    assert found.rows == (Row("exp", gamma=found.gamma[0]),)
    assert found.gamma == (pytest.approx(1.0),)
    assert any("not of each head alone" in note for note in found.notes())
    _, some = stored(2)  # of three layers
    (tmp_path / "config.json").write_text(json.dumps(config("qwen3")))
    save_file(some, tmp_path / "model.safetensors")
    assert describe(tmp_path).gamma == (pytest.approx(1.0),)


def test_describe_reads_gains_of_a_gguf_file(tmp_path):
    gains, _ = stored(2)
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(64)
    writer.add_embedding_length(4 * D)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_key_length(D)
    writer.add_rope_freq_base(1e4)
    for i in range(2):
        for j, which in enumerate("qk"):
            writer.add_tensor(f"blk.{i}.attn_{which}_norm.weight", gains[i, j].astype("f"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wanted = np.sqrt(((gains[:, 0] * gains[:, 1]) ** 2).sum(-1)) / D**0.5
    assert describe(path).gamma == (pytest.approx(np.median(wanted), rel=1e-6),)


@pytest.mark.model
@pytest.mark.parametrize("kind", ["Qwen3", "Gemma3Text"])
def test_gamma_and_bound_are_those_of_the_modules_of_transformers(kind, tmp_path):
    """Scores of random vectors through the model's own norms, from a model that it saved."""
    torch, hf = library("torch"), library("transformers")
    torch.manual_seed(0)
    sizes = dict(vocab_size=50, hidden_size=32, intermediate_size=16, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=D)  # fmt: skip
    model = getattr(hf, kind.replace("Text", "") + "ForCausalLM")(
        getattr(hf, f"{kind}Config")(**sizes)
    )
    for layer in model.model.layers:
        for norm in (layer.self_attn.q_norm, layer.self_attn.k_norm):
            norm.weight.data = torch.rand(D) * 1.5
    model.save_pretrained(tmp_path)
    found, tried = describe(tmp_path, lengths=(16,)), 0
    for layer, own in zip(found.kinds, found.gamma, strict=True):
        gamma, most = [], 0.0
        for number in layer.layers:
            attention = model.model.layers[number].self_attn
            q, k = torch.randn(2, 200_000, D)
            with torch.no_grad():
                s = (attention.q_norm(q) * attention.k_norm(k)).sum(-1).double().numpy()
            s *= attention.scaling
            error = (s**2).std() / np.sqrt(len(s))
            gamma.append((s**2).mean() ** 0.5)
            most = max(most, np.abs(s).max())
            tried += 1
        assert own == pytest.approx(np.median(gamma), abs=4.5 * error / own)
        bound = float(next(x for x in layer.notes if "gains" in x).split("≤ ")[1])
        assert 0.4 * bound < most <= bound * 1.01
    assert tried == 2
