"""The real encoder: its numbers, its tokenizer, and what can be put into it."""

import hashlib
import importlib.util
import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from manyheads import minilm
from manyheads.scaled_dot_product import attention

ASSETS = Path(minilm.__file__).parent / "assets"
TIRED = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def model():
    return minilm.load()


# What it computes


def test_embeddings_equal_those_of_the_published_code_on_the_same_rounded_weights(model):
    sentences, rounded, _ = minilm.reference()
    np.testing.assert_allclose(model.encode(sentences).embeddings, rounded, atol=2e-6)


def test_rounding_keeps_embeddings_within_a_cosine_of_0_999(model):
    sentences, _, full = minilm.reference()
    cosines = (model.encode(sentences).embeddings * full).sum(-1)
    assert cosines.min() >= 0.999


def test_padding_changes_nothing(model):
    together = model.encode([TIRED, "Yes."])
    alone = model.encode("Yes.")
    n = len(alone.tokens[0])
    np.testing.assert_allclose(together.embeddings[1:], alone.embeddings, atol=1e-6)
    np.testing.assert_allclose(together.hidden[:, 1, :n], alone.hidden[:, 0], atol=2e-5)
    assert not together.weights[:, 1, :, :, n:].any()


def test_shapes_and_dtypes_are_as_documented(model):
    result = model.encode([TIRED, "Yes."])
    n = len(result.tokens[0])
    assert result.hidden.shape == (7, 2, n, 384)
    assert result.weights.shape == (6, 2, 12, n, n)
    assert result.embeddings.shape == (2, 384)
    assert result.mask.tolist() == [[True] * n, [True] * 4 + [False] * (n - 4)]
    assert result.hidden.dtype == result.weights.dtype == result.embeddings.dtype == np.float32
    np.testing.assert_allclose(result.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(result.embeddings, axis=-1), 1, atol=1e-5)


def test_embed_gives_what_the_first_layer_reads(model):
    x, mask = model.embed([TIRED, "Yes."])
    result = model.encode([TIRED, "Yes."])
    np.testing.assert_array_equal(x, result.hidden[0])
    np.testing.assert_array_equal(mask, result.mask)


def test_encode_uses_the_packaged_model(model):
    np.testing.assert_array_equal(minilm.encode("Yes.").embeddings, model.encode("Yes.").embeddings)


def test_an_asset_can_be_loaded_from_a_path_and_from_bytes(model):
    path = ASSETS / "minilm-int8.npz"
    for source in (path, str(path), path.read_bytes()):
        loaded = minilm.load(source)
        np.testing.assert_array_equal(loaded.layers[5]["W_2"], model.layers[5]["W_2"])


def test_layers_have_the_parameters_of_an_encoder_layer(model):
    d, wide = 384, 1536
    expected = {f"W_{r}": (d, d) for r in "qkvo"} | {"W_1": (d, wide), "W_2": (wide, d)}
    expected |= {f"b_{r}": (d,) for r in "qkvo2"} | {"b_1": (wide,)}
    expected |= {f"{name}_{i}": (d,) for name in ("gamma", "beta") for i in "12"}
    assert len(model.layers) == 6
    for layer in model.layers:
        assert {name: a.shape for name, a in layer.items()} == expected
        assert all(a.dtype == np.float32 for a in layer.values())


def test_the_course_s_own_encoder_layer_carries_the_model_end_to_end(model):
    transformer = pytest.importorskip("manyheads.transformer")
    sentences, rounded, _ = minilm.reference()
    x, mask = model.embed(sentences[:4])
    for params in model.layers:
        x = transformer.encoder_layer(x, params, model.num_heads, mask[:, None, :])
    embeddings = transformer.sentence_embedding(x, mask)
    np.testing.assert_allclose(embeddings, rounded[:4], atol=1e-4)


# What its heads do


def test_layer_1_head_3_looks_at_the_previous_token(model):
    result = model.encode(minilm.sentences("plain")[:5])
    for b, tokens in enumerate(result.tokens):
        i = np.arange(1, len(tokens))
        assert result.weights[0, b, 2, i, i - 1].min() > 0.9


def test_layer_4_head_2_follows_it_to_the_animal_when_it_is_tired(model):
    wide = TIRED.replace("tired", "wide")
    result = model.encode([TIRED, wide])
    it, animal = (result.tokens[0].index(word) for word in ("it", "animal"))
    tired_weight, wide_weight = result.weights[3, :, 1, it, animal]
    assert tired_weight > 0.5 > 0.4 > wide_weight


def test_attention_tells_the_two_banks_apart(model):
    senses, sentences = zip(*minilm.sentences("bank"), strict=True)
    same = np.equal.outer(senses, senses) & ~np.eye(len(senses), dtype=bool)
    other = np.not_equal.outer(senses, senses)

    def gap(head_mask):
        result = model.encode(sentences, head_mask=head_mask)
        v = np.array([result.hidden[-1, b, t.index("bank")] for b, t in enumerate(result.tokens)])
        v /= np.linalg.norm(v, axis=-1, keepdims=True)
        cosines = v @ v.T
        return cosines[same].mean() - cosines[other].mean()

    assert gap(head_mask=None) > 0.05
    assert gap(head_mask=np.zeros((6, 12), bool)) < 0.01


# What can be put into it


def test_the_given_attention_runs_in_every_layer_with_a_mask_only_where_padded(model):
    calls = []

    def spy(Q, K, V, mask):
        calls.append((Q.shape, K.shape, V.shape, None if mask is None else mask.shape))
        return attention(Q, K, V, mask)

    n = len(model.encode(TIRED, attention=spy).tokens[0])
    assert calls == [((1, 12, n, 32),) * 3 + (None,)] * 6
    calls.clear()
    model.encode([TIRED, "Yes."], attention=spy)
    assert calls == [((2, 12, n, 32),) * 3 + ((2, 1, 1, n),)] * 6


def test_a_wrong_attention_gives_other_embeddings(model):
    def unscaled(Q, K, V, mask):
        return attention(Q * Q.shape[-1] ** 0.5, K, V, mask)

    assert (model.encode(TIRED, unscaled).embeddings @ model.encode(TIRED).embeddings.T) < 0.99


def test_an_attention_may_answer_in_float64_lists_and_without_weights(model):
    def lists(Q, K, V, mask):
        return attention(*(a.astype(np.float64) for a in (Q, K, V)), mask)[0].tolist(), None

    result = model.encode("Yes.", attention=lists)
    assert result.weights is None
    assert result.embeddings.dtype == np.float32
    np.testing.assert_allclose(result.embeddings, model.encode("Yes.").embeddings, atol=1e-5)


def test_an_attention_of_the_wrong_shape_is_named(model):
    with pytest.raises(ValueError, match=r"output of shape \(1, 12, 4, 4\), not \(1, 12, 4, 32\)"):
        model.encode("Yes.", attention=lambda Q, K, V, mask: attention(Q, K, V, mask)[::-1])
    with pytest.raises(ValueError, match=r"weights of shape \(1, 12, 4, 32\), not \(1, 12, 4, 4\)"):
        model.encode("Yes.", attention=lambda Q, K, V, mask: (V, V))


def test_silencing_a_head_changes_what_follows_but_not_its_own_weights(model):
    keep = np.ones((6, 12), bool)
    keep[3, 1] = False
    silenced, whole = model.encode(TIRED, head_mask=keep), model.encode(TIRED)
    np.testing.assert_array_equal(silenced.hidden[:4], whole.hidden[:4])
    np.testing.assert_array_equal(silenced.weights[3], whole.weights[3])
    assert np.abs(silenced.hidden[4] - whole.hidden[4]).max() > 0.01


def test_a_hand_written_previous_token_head_replaces_the_trained_one(model):
    replaced = model.encode(TIRED, replace={(0, 2): lambda n: np.eye(n, k=-1)})
    n = len(replaced.tokens[0])
    np.testing.assert_array_equal(replaced.weights[0, 0, 2], np.eye(n, k=-1))
    whole = model.encode(TIRED)
    assert (replaced.embeddings * whole.embeddings).sum() > 0.9999
    uniform = model.encode(TIRED, replace={(0, 2): np.full((n, n), 1 / n)})
    assert (uniform.embeddings * whole.embeddings).sum() < 0.999


def test_replacing_a_head_by_its_own_weights_changes_nothing(model):
    whole = model.encode(TIRED)
    again = model.encode(TIRED, replace={(3, 1): whole.weights[3, 0, 1]})
    np.testing.assert_allclose(again.embeddings, whole.embeddings, atol=1e-6)


def test_parameters_and_results_of_attention_are_left_alone(model):
    before = {name: a.copy() for name, a in model.layers[0].items()}
    kept = []

    def keeping(Q, K, V, mask):
        kept.append(attention(Q, K, V, mask))
        return kept[-1]

    model.encode(TIRED, keeping, head_mask=np.zeros((6, 12)), replace={(0, 0): np.eye})
    assert all(np.array_equal(before[name], a) for name, a in model.layers[0].items())
    assert np.abs(kept[0][0]).max() > 0
    assert not np.array_equal(kept[0][1][0, 0], np.eye(kept[0][1].shape[-1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sentences": []}, "no sentence"),
        ({"sentences": "water " * 600}, "602 tokens"),
        ({"sentences": "Yes.", "head_mask": np.ones((12, 6), bool)}, "head_mask"),
        ({"sentences": "Yes.", "replace": {(6, 0): np.eye}}, "no layer 6"),
        ({"sentences": "Yes.", "replace": {(0, 12): np.eye}}, "head 12"),
        ({"sentences": "Yes.", "replace": {(0, 0): np.eye(3)}}, "4 tokens"),
    ],
)
def test_wrong_arguments_are_named(model, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        model.encode(**arguments)


def test_the_model_can_be_used_where_later_chapters_are_hidden():
    code = """
import sys
for chapter in ("seeing_heads", "cross_attention", "positions", "sparse", "efficient",
                "gradients_and_debugging", "transformer"):
    sys.modules[f"manyheads.{chapter}"] = None
from manyheads import minilm
print(minilm.encode("Yes.").weights.shape)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "(6, 1, 12, 4, 4)\n"


# Its tokenizer


@pytest.mark.parametrize(
    ("sentence", "tokens"),
    [
        ("It didn't.", "it didn ' t ."),
        ("Naïve  CAFÉ,\tyes", "naive cafe , yes"),
        ("snowy mortgages", "snowy mortgage ##s"),
        ("$5^2", "$ 5 ^ 2"),
        ("zero\u200bwidth", "zero ##wi ##dt ##h"),
    ],
)
def test_words_become_the_published_tokens(model, sentence, tokens):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "zerowidth" is no common word
        assert model.tokenize(sentence) == ["[CLS]", *tokens.split(), "[SEP]"]


def test_a_word_without_a_vector_is_warned_of_by_name(model):
    with pytest.warns(UserWarning, match="vocabulary: kurdistan, 日. "):
        tokens = model.tokenize("Yes, Kurdistan 日.")
    assert tokens[:3] == ["[CLS]", "yes", ","]
    assert "kurdistan" not in tokens


def test_every_sentence_of_the_course_is_known(model):
    listed = [s for _, s in minilm.sentences("bank")] + minilm.sentences("plain")
    listed += [s for triple in minilm.sentences("paraphrases") for s in triple]
    listed += [p["template"].format(w) for p in minilm.sentences("pronouns") for w in p["words"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for sentence in listed:
            model.tokenize(sentence)


def test_the_nouns_of_the_pronoun_pairs_are_single_tokens(model):
    for pair in minilm.sentences("pronouns"):
        tokens = model.tokenize(pair["template"].format(pair["words"][0]))
        assert all(noun in tokens for noun in (*pair["nouns"], "it"))


def test_another_kind_of_sentences_is_refused():
    with pytest.raises(ValueError, match="plain, pronouns, paraphrases, bank"):
        minilm.sentences("poems")


# The asset


def test_the_asset_is_small_and_is_the_one_that_the_notice_describes():
    raw = (ASSETS / "minilm-int8.npz").read_bytes()
    assert len(raw) < 14_000_000
    assert hashlib.sha256(raw).hexdigest() in (ASSETS / "NOTICE").read_text()
    with np.load(io.BytesIO(raw)) as stored:
        kept = int((stored["rows"] >= 0).sum())
    assert f"{kept:,} are kept" in (ASSETS / "NOTICE").read_text()


@pytest.mark.parametrize("name", ["LICENSE-Apache-2.0", "LICENSE-MIT", "NOTICE"])
def test_the_licences_lie_beside_it(name):
    assert (ASSETS / name).read_text()


def test_full_precision_equals_transformers_where_the_wheel_is_at_hand():
    """MINILM_WHEEL is the wheel's path: see assets/make_minilm.py."""
    wheel = os.environ.get("MINILM_WHEEL")
    if not wheel:
        pytest.skip("MINILM_WHEEL is not set")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    spec = importlib.util.spec_from_file_location("make_minilm", ASSETS / "make_minilm.py")
    make_minilm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_minilm)
    full = make_minilm.renamed(*make_minilm.read_wheel(wheel))
    sentences = make_minilm.all_sentences()[::10]
    expected = make_minilm.published_embeddings(full, sentences)
    embeddings = minilm.MiniLM(full).encode(sentences).embeddings
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)
