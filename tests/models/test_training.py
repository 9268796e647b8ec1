"""The tiny trained models: their gradients, what they can do, and how broken starts fail."""

import subprocess
import sys

import numpy as np
import pytest

from manyheads import training
from manyheads.gradients_and_debugging import attention_backward, diagnose_weights
from manyheads.training import adam, encoder_decoder, induction, layers, reversal, starts

# Gradients by hand


def differences(loss, params, rng, entries=5, eps=1e-6):
    """name -> (indices, central differences there); params is float64 and restored."""
    measured = {}
    for name, p in params.items():
        flat = p.reshape(-1)
        places = rng.integers(flat.size, size=entries)
        slopes = []
        for i in places:
            before = flat[i]
            flat[i] = before + eps
            above = loss()
            flat[i] = before - eps
            slopes.append((above - loss()) / (2 * eps))
            flat[i] = before
        measured[name] = places, np.array(slopes)
    return measured


def in_float64(params):
    return {name: p.astype(np.float64) for name, p in params.items()}


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("reach", [None, 1])
def test_the_encoder_decoders_gradients_equal_central_differences(scaled, reach):
    rng = np.random.default_rng(1)
    task = reversal.task(shortest=2, longest=5)
    params = in_float64(encoder_decoder.new_params(task, d=6, wide=10, rng=rng))
    model = encoder_decoder.EncoderDecoder(task, params, 3, reach, scaled)
    batch = task.batch(rng, 4)
    _, gradients = model.loss_and_gradients(*batch)
    assert gradients.keys() == params.keys()
    measured = differences(lambda: model.loss_and_gradients(*batch)[0], params, rng)
    for name, (places, slopes) in measured.items():
        np.testing.assert_allclose(
            gradients[name].reshape(-1)[places], slopes, atol=1e-7, err_msg=name
        )


def test_the_induction_models_gradients_equal_central_differences():
    rng = np.random.default_rng(2)
    params = in_float64(induction.new_params(6, rng))
    model = induction.Induction(params, num_heads=2)
    ids, periods = induction.batch(rng, 3, n=9)
    counted = induction.repeated(periods, n=9)
    _, gradients = model.loss_and_gradients(ids, counted)
    assert gradients.keys() == params.keys()
    measured = differences(lambda: model.loss_and_gradients(ids, counted)[0], params, rng)
    for name, (places, slopes) in measured.items():
        np.testing.assert_allclose(
            gradients[name].reshape(-1)[places], slopes, atol=1e-7, err_msg=name
        )


def test_attention_goes_backwards_through_the_librarys_own_function(monkeypatch):
    calls = []

    def spy(*args):
        calls.append(args)
        return attention_backward(*args)

    monkeypatch.setattr("manyheads.gradients_and_debugging.attention_backward", spy)
    rng = np.random.default_rng(3)
    model = induction.Induction(induction.new_params(8, rng), num_heads=2)
    ids, periods = induction.batch(rng, 2)
    model.loss_and_gradients(ids, induction.repeated(periods))
    assert len(calls) == 2


def test_float32_stays_float32():
    rng = np.random.default_rng(4)
    task = reversal.task()
    model = encoder_decoder.EncoderDecoder(
        task, encoder_decoder.new_params(task, 8, 16, rng), num_heads=2, scaled=False
    )
    _, gradients = model.loss_and_gradients(*task.batch(rng, 3))
    assert {g.dtype for g in gradients.values()} == {np.dtype(np.float32)}


def test_a_uniform_guess_costs_the_logarithm_of_the_choices():
    loss, d_logits = layers.cross_entropy(
        np.zeros((2, 3, 7)), np.zeros((2, 3), int), np.ones((2, 3), bool)
    )
    assert loss == pytest.approx(np.log(7))
    np.testing.assert_allclose(d_logits.sum(-1), 0, atol=1e-12)


def test_adams_first_step_has_the_learning_rates_size():
    params = {"w": np.array([1.0, -2.0])}
    adam.Adam(params).step({"w": np.array([1e-3, -50.0])}, rate=0.1)
    np.testing.assert_allclose(params["w"], [0.9, -1.9], rtol=1e-4)


# Training


def test_a_few_steps_make_the_loss_fall():
    history = reversal.train(d=24, steps=60, every=30).history
    assert history["step"].tolist() == [0, 30, 60]
    assert history["loss"][-1] < 0.9 * history["loss"][0]


def test_a_training_can_be_repeated():
    first, second = (induction.train(d=16, steps=10, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.history["loss"], second.history["loss"])
    assert induction.train(d=16, steps=10, seed=8).history["loss"][-1] != first.history["loss"][-1]


def test_a_record_has_the_documented_shapes():
    history = starts.train("healthy", steps=2).history
    assert history["entropy"].shape == (2, 4)
    assert all(history[f"grad_{W}"].shape == (2, 4) for W in ("W_q", "W_k", "W_v", "W_o"))
    assert history["alignment"].shape == (2, 4, 11, 11)
    assert 0 < history["entropy"].min() < history["entropy"].max() <= 1


# What the stored models can do


def test_the_reversal_model_reverses_every_unseen_word():
    model = training.load("reversal")
    assert model.write(["abcdefghij"]) == ["jihgfedcba"]
    assert model.exact() >= 0.99


def test_the_reversal_models_alignment_is_the_antidiagonal():
    read, written, weights = training.load("reversal").alignment("abcdefghij")
    assert (read, written) == ("abcdefghij$", "jihgfedcba$")
    letters = weights[0, :10, :10]
    assert letters.argmax(-1).tolist() == list(range(9, -1, -1))
    assert np.diag(letters[::-1]).min() > 0.5


def test_the_alignment_appears_during_training():
    history = training.load("reversal").history
    antidiagonal = history["alignment"][:, 0, np.arange(10), np.arange(9, -1, -1)].mean(-1)
    assert antidiagonal[0] < 0.2 < 0.8 < antidiagonal[-1]


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("Tuesday, 7 Oct 1986", "1986-10-07"),
        ("December 25, 2031", "2031-12-25"),
        ("9/11/1989", "1989-11-09"),
        ("3 May 1999", "1999-05-03"),
        ("Feb 28 2049", "2049-02-28"),
    ],
)
def test_the_dates_model_reads_five_ways_of_writing(text, date):
    assert training.load("dates").write([text]) == [date]


def test_the_dates_model_makes_hardly_a_mistake():
    assert training.load("dates").exact() >= 0.97


def test_the_dates_models_alignment_points_to_the_part_that_is_written():
    read, _, weights = training.load("dates").alignment("December 25, 2031")
    place = weights[0] @ np.arange(len(read))  # (n,), where each written character looks
    month, day, year = (
        np.mean([place[i] for i in span]) for span in (range(5, 7), range(8, 10), range(0, 4))
    )
    assert month < read.index("r") < day < read.index(",") + 1.5 < year


def test_a_text_outside_the_alphabet_is_refused():
    model = training.load("dates")
    for text in ("7 October 1986!", "^", "1 January 1986" * 3):
        with pytest.raises(ValueError, match="at most 24 of the characters"):
            model.write([text])


def test_the_induction_model_continues_what_it_has_seen_once():
    model = training.load("induction")
    ids, periods = induction.batch(np.random.default_rng(0), 200)
    assert induction.scores(model, ids, periods)["accuracy"] > 0.95


def test_its_layers_look_back_by_one_and_then_for_what_came_after():
    model = training.load("induction")
    ids = np.resize(np.random.default_rng(3).permutation(24)[:11], 28)[None]
    scores = induction.scores(model, ids, np.array([11]))
    assert scores["previous"].shape == scores["induction"].shape == (2, 2)
    assert scores["previous"][0].max() > 0.9
    assert scores["induction"][1].max() > 0.6
    assert scores["induction"][0].max() < 0.1


def test_without_either_layer_it_cannot_continue():
    without = training.history("without")
    whole = training.load("induction").history["accuracy"][-1]
    assert whole > 0.95
    for history in without.values():
        assert history["accuracy"][-1] < 0.6


def test_a_trained_model_can_be_used_where_later_chapters_are_hidden():
    code = """
import sys
for chapter in ("seeing_heads", "cross_attention", "positions", "sparse", "efficient",
                "gradients_and_debugging", "transformer"):
    sys.modules[f"manyheads.{chapter}"] = None
from manyheads import training
print(training.load("dates").write(["3 May 1999"])[0], training.load("induction").num_heads)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["1999-05-03", "2"]


# Broken starts


@pytest.fixture(scope="module")
def recorded():
    return training.history("starts")


def test_every_start_is_recorded(recorded):
    assert recorded.keys() == starts.STARTS.keys()


def test_a_healthy_start_learns_the_task(recorded):
    assert recorded["healthy"]["accuracy"][-1] > 0.99
    assert recorded["healthy"]["entropy"][-1].max() < 0.5


def test_zero_queries_and_keys_stay_uniform_for_ever(recorded):
    history = recorded["W_q = W_k = 0"]
    np.testing.assert_allclose(history["entropy"], 1, atol=1e-3)
    assert not history["grad_W_q"].any() and not history["grad_W_k"].any()


def test_zero_values_and_output_are_dead_for_ever(recorded):
    history = recorded["W_v = W_o = 0"]
    assert not any(history[f"grad_{W}"].any() for W in ("W_q", "W_k", "W_v", "W_o"))
    assert history["accuracy"][-1] < 0.3


@pytest.mark.parametrize("name", ["W_q = 0", "W_o = 0", "W_q, W_k times 0.01"])
def test_one_zero_matrix_or_small_ones_heal(recorded, name):
    assert recorded[name]["accuracy"][-1] > 0.97


def test_twenty_times_the_queries_and_keys_saturates(recorded):
    history = recorded["W_q, W_k times 20"]
    assert history["entropy"][0].max() < 0.05
    assert history["accuracy"][-1] < 0.9 * recorded["healthy"]["accuracy"][-1]


def test_no_scaling_hurts_wide_heads_and_only_slows_narrow_ones(recorded):
    assert recorded["one head"]["accuracy"][-1] > 0.97
    assert recorded["one head, no scaling"]["accuracy"][-1] < 0.7
    assert recorded["four heads, no scaling"]["accuracy"][-1] > 0.97


@pytest.mark.parametrize(
    ("name", "state"), [("W_q = W_k = 0", "uniform"), ("W_q, W_k times 20", "saturated")]
)
def test_a_broken_start_is_diagnosed(name, state):
    model = starts.train(name, steps=0)
    source, target = model.task.batch(np.random.default_rng(0), 40)
    full = (source != encoder_decoder.PAD).all(-1)  # padding would lower the entropy
    assert diagnose_weights(model(source[full], target[full, :-1])[1]) == [state] * 4


def test_a_trained_model_is_diagnosed_as_healthy():
    model = training.load("reversal")
    source, target = model.task.batch(np.random.default_rng(0), 20)
    assert diagnose_weights(model(source, target[:, :-1])[1]) == ["healthy"]


# The checkpoints


def test_checkpoints_are_small():
    for path in training._CHECKPOINTS.iterdir():
        assert path.stat().st_size < 300_000, path.name


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="dates, reversal, induction"):
        training.load("chess")
    with pytest.raises(ValueError, match="starts, widths, without"):
        training.history("chess")


def test_narrow_heads_hurt_above_and_not_below():
    layers = training.history("widths")["layers"]
    assert layers["accuracy"].shape == (len(layers["heads"]), 3, len(layers["step"]))
    below, above = layers["heads"].T
    end = layers["accuracy"][..., -1]
    assert end[below > above].min() > 0.9 > end[below < above].max()


def test_layers_may_have_different_numbers_of_heads():
    rng = np.random.default_rng(0)
    ids, periods = induction.batch(rng, 3)
    uneven = induction.Induction(induction.new_params(8, rng), num_heads=(2, 4))
    assert uneven.logits(ids).shape == (3, 32, 24)
    assert 0 <= induction.accuracy(uneven.logits(ids), ids, periods) <= 1
    with pytest.raises(ValueError, match="shape"):
        uneven(ids)


def test_the_sweep_over_heads_has_its_shapes():
    sweep = training.history("widths")["sweep"]
    assert sweep["accuracy"].shape == (len(sweep["heads"]), 3, len(sweep["step"]))
    assert (sweep["accuracy"][..., 0] < 0.2).all()
    assert sweep["accuracy"][..., -1].mean(-1).max() > 0.95
