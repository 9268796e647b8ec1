"""What book/conventions.md says about other libraries, held against these libraries."""

import inspect
import math

import numpy as np
import pytest

from manyheads.matrices import softmax
from manyheads.scaled_dot_product import attention, causal_mask, padding_mask

B, H, N, M, D = 2, 3, 4, 5, 6
NOTHING = np.ones((N, M), bool)
NOTHING[0] = False  # the first query sees nothing


@pytest.fixture
def qkv():
    rng = np.random.default_rng(7)
    return [rng.normal(size=(B, H, length, D)) for length in (N, M, M)]


class TestPyTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        return pytest.importorskip("torch")

    def sdpa(self, torch, *arrays, **options):
        call = torch.nn.functional.scaled_dot_product_attention
        return call(*map(torch.tensor, arrays), **options).numpy()

    def layer(self, torch, **options):
        torch.manual_seed(0)
        return torch.nn.MultiheadAttention(D, 2, batch_first=True, dtype=torch.float64, **options)

    def test_true_means_may_attend(self, torch, qkv):
        mask = causal_mask(N, M) & padding_mask(np.array([5, 3]), M)[:, None]
        ours, _ = attention(*qkv, np.broadcast_to(mask, (B, H, N, M)))
        assert np.allclose(self.sdpa(torch, *qkv, attn_mask=torch.tensor(mask)), ours)

    def test_a_query_that_sees_nothing_gets_zero(self, torch, qkv):
        output = self.sdpa(torch, *qkv, attn_mask=torch.tensor(NOTHING))
        assert not output[..., 0, :].any() and output[..., 1:, :].all()

    def test_is_causal_is_aligned_at_the_start(self, torch, qkv):
        ours, _ = attention(*qkv, np.tri(N, M, dtype=bool))
        assert np.allclose(self.sdpa(torch, *qkv, is_causal=True), ours)
        assert (np.tri(N, M, dtype=bool) != causal_mask(N, M)).any()

    def test_causal_lower_right_is_aligned_at_the_end(self, torch, qkv):
        from torch.nn.attention.bias import causal_lower_right

        bias = causal_lower_right(N, M)
        ours, _ = attention(*qkv, causal_mask(N, M))
        assert np.allclose(self.sdpa(torch, *qkv, attn_mask=bias), ours)

    def test_the_layer_hides_where_its_masks_are_true(self, torch):
        layer, x = self.layer(torch), torch.randn(B, N, D, dtype=torch.float64)
        hidden = torch.tensor(~causal_mask(N))
        padding = torch.tensor(~padding_mask(np.array([4, 2]), N)[:, 0])
        _, weights = layer(x, x, x, attn_mask=hidden, key_padding_mask=padding)
        assert not weights[:, hidden].any()
        assert not weights[1, :, 2:].any() and weights[0, 3].all()

    def test_the_layer_returns_the_mean_over_its_heads(self, torch):
        layer, x = self.layer(torch), torch.randn(B, N, D, dtype=torch.float64)
        _, mean = layer(x, x, x)
        _, each = layer(x, x, x, average_attn_weights=False)
        assert each.shape == (B, 2, N, N)
        assert torch.allclose(each.mean(dim=1), mean)

    def test_the_layer_stacks_three_transposed_projections_and_splits_as_we_do(self, torch):
        layer, x = self.layer(torch, bias=False), torch.randn(B, N, D, dtype=torch.float64)
        assert layer.in_proj_weight.shape == (3 * D, D)
        W_q, W_k, W_v = (W.T for W in layer.in_proj_weight.detach().numpy().reshape(3, D, D))
        heads = []
        for i in range(2):
            columns = slice(i * D // 2, (i + 1) * D // 2)
            heads.append(attention(*(x.numpy() @ W[:, columns] for W in (W_q, W_k, W_v)))[0])
        ours = np.concatenate(heads, axis=-1) @ layer.out_proj.weight.detach().numpy().T
        assert np.allclose(layer(x, x, x)[0].detach().numpy(), ours)

    def test_the_layer_is_not_batch_first_by_default(self, torch):
        assert not torch.nn.MultiheadAttention(D, 2).batch_first

    def test_grouped_heads_follow_each_other(self, torch, qkv):
        Q = np.concatenate([qkv[0], qkv[0] + 1], axis=1)  # six query heads for three groups
        ours = [attention(Q[:, i], qkv[1][:, i // 2], qkv[2][:, i // 2])[0] for i in range(6)]
        theirs = self.sdpa(torch, Q, *qkv[1:], enable_gqa=True)
        assert np.allclose(theirs, np.stack(ours, axis=1))

    def test_linear_keeps_the_transpose(self, torch):
        layer = torch.nn.Linear(3, 5)
        assert layer.weight.shape == (5, 3)

    def test_layer_norm_has_another_epsilon_and_the_same_variance(self, torch):
        layer = torch.nn.LayerNorm(D)
        x = np.random.default_rng(0).normal(size=D)
        ours = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
        assert layer.eps == 1e-5
        assert np.allclose(layer(torch.tensor(x, dtype=torch.float32)).detach().numpy(), ours, 1e-5)


class TestJax:
    @pytest.fixture(autouse=True)
    def jax(self):
        return pytest.importorskip("jax")

    def call(self, jax, qkv, **options):
        arrays = (np.moveaxis(a, 1, 2).astype("float32") for a in qkv)  # (B, n, h, d_k)
        return np.moveaxis(np.asarray(jax.nn.dot_product_attention(*arrays, **options)), 1, 2)

    def test_true_means_may_attend_and_heads_come_after_positions(self, jax, qkv):
        mask = np.broadcast_to(causal_mask(N, M), (B, H, N, M))
        ours, _ = attention(*qkv, mask)
        assert np.allclose(self.call(jax, qkv, mask=mask), ours, atol=1e-5)

    def test_is_causal_is_aligned_at_the_start(self, jax, qkv):
        ours, _ = attention(*qkv, np.tri(N, M, dtype=bool))
        assert np.allclose(self.call(jax, qkv, is_causal=True), ours, atol=1e-5)

    def test_a_query_that_sees_nothing_gets_the_mean_of_the_values(self, jax, qkv):
        output = self.call(jax, qkv, mask=np.broadcast_to(NOTHING, (B, H, N, M)))
        assert np.allclose(output[..., 0, :], qkv[2].mean(axis=-2), atol=1e-5)

    def test_windows_count_to_each_side_without_the_query_itself(self, jax, qkv):
        K, V = qkv[1][..., :N, :], qkv[2][..., :N, :]
        i, j = np.indices((N, N))
        ours, _ = attention(qkv[0], K, V, abs(i - j) <= 1)
        theirs = self.call(jax, [qkv[0], K, V], local_window_size=1)
        assert np.allclose(theirs, ours, atol=1e-5)

    def test_gelu_is_approximate_by_default(self, jax):
        assert inspect.signature(jax.nn.gelu).parameters["approximate"].default is True

    def test_glorot_normal_is_cut_off_and_has_the_same_variance(self, jax):
        draw = jax.nn.initializers.glorot_normal()(jax.random.key(0), (400, 600))
        std = math.sqrt(2 / 1000)
        assert abs(float(draw.std()) / std - 1) < 0.01
        assert float(abs(draw).max()) < 2.3 * std  # two standard deviations, then widened


def test_minus_1e9_gives_the_mean_to_a_query_that_sees_nothing(qkv):
    scores = np.full((N, M), -1e9) + np.random.default_rng(1).normal(size=(N, M))
    weights = softmax(scores.astype("float32"))
    assert np.allclose(weights, 1 / M)
