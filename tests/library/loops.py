"""The library's functions once more, entry by entry in plain Python: slow, and hard to get wrong.

Everything here is for one item without batch axes. Arguments are what NumPy can index, results are
nested lists. Functions have the library's names and the library's order of arguments.
"""

import math


def softmax(x):
    return [softmax_row(row) for row in x]


def softmax_row(row, visible=None):
    visible = [True] * len(row) if visible is None else visible
    seen = [float(score) for score, see in zip(row, visible, strict=True) if see]
    if not seen:
        return [0.0] * len(row)
    total = sum(math.exp(score - max(seen)) for score in seen)
    return [
        math.exp(float(score) - max(seen)) / total if see else 0.0
        for score, see in zip(row, visible, strict=True)
    ]


def linear(x, W, b=None):
    d_in, d_out = len(W), len(W[0])
    return [
        [
            sum(float(row[i]) * float(W[i][o]) for i in range(d_in))
            + (0.0 if b is None else float(b[o]))
            for o in range(d_out)
        ]
        for row in x
    ]


def attention_scores(Q, K):
    return [[dot(q, k) / math.sqrt(len(q)) for k in K] for q in Q]


def dot(a, b):
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def mix(weights, V):
    return [
        [sum(w * float(v[c]) for w, v in zip(row, V, strict=True)) for c in range(len(V[0]))]
        for row in weights
    ]


def add(x, y):
    return [
        [float(a) + float(b) for a, b in zip(p, q, strict=True)] for p, q in zip(x, y, strict=True)
    ]


def columns(x, start, stop):
    return [list(row[start:stop]) for row in x]


def everywhere(n, m):
    return [[True] * m for _ in range(n)]


def causal_mask(n, m):
    return [[j <= i + (m - n) for j in range(m)] for i in range(n)]


def attention(Q, K, V, mask=None):
    mask = everywhere(len(Q), len(K)) if mask is None else mask
    scores = attention_scores(Q, K)
    weights = [softmax_row(row, see) for row, see in zip(scores, mask, strict=True)]
    return mix(weights, V), weights


def self_attention(x, W_q, W_k, W_v, mask=None):
    return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)


def split_heads(x, num_heads):
    d_k = len(x[0]) // num_heads
    return [columns(x, i * d_k, (i + 1) * d_k) for i in range(num_heads)]


def merge_heads(x):
    return [[entry for head in x for entry in head[i]] for i in range(len(x[0]))]


def heads_of(x, memory, W_q, W_k, W_v, num_heads, mask=None, biases=(None, None, None)):
    Q, K, V = (
        split_heads(linear(source, W, b), num_heads)
        for source, W, b in zip((x, memory, memory), (W_q, W_k, W_v), biases, strict=True)
    )
    pairs = [attention(q, k, v, mask) for q, k, v in zip(Q, K, V, strict=True)]
    return [output for output, _ in pairs], [weights for _, weights in pairs]


def multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    return cross_attention(x, x, W_q, W_k, W_v, W_o, num_heads, mask)


def cross_attention(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    heads, weights = heads_of(x, memory, W_q, W_k, W_v, num_heads, memory_mask)
    return linear(merge_heads(heads), W_o), weights


def decoder_attention(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    past = causal_mask(len(y), len(y))
    written, _ = multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)
    z = add(y, written)
    read, _ = cross_attention(
        z, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask
    )
    return add(z, read)


def attention_entropy(weights):
    return [-sum(float(w) * math.log(w) for w in row if w > 0) for row in weights]


def attention_distance(weights):
    return [
        sum(abs(i - j) * float(w) for i, row in enumerate(head) for j, w in enumerate(row))
        / len(head)
        for head in weights
    ]


def offset_score(weights, offset):
    n = len(weights[0])
    queries = [i for i in range(n) if 0 <= i + offset < n]
    return [sum(float(head[i][i + offset]) for i in queries) / len(queries) for head in weights]


def ablate_heads(x, W_q, W_k, W_v, W_o, num_heads, keep):
    heads, _ = heads_of(x, x, W_q, W_k, W_v, num_heads)
    kept = [
        head if use else [[0.0] * len(row) for row in head]
        for head, use in zip(heads, keep, strict=True)
    ]
    return linear(merge_heads(kept), W_o)


def hard_alignment(weights):
    alignment = []
    for i in range(len(weights[0])):
        totals = [sum(float(head[i][j]) for head in weights) for j in range(len(weights[0][0]))]
        alignment.append(totals.index(max(totals)))
    return alignment


def biased_attention(Q, K, V, bias, mask=None):
    mask = everywhere(len(Q), len(K)) if mask is None else mask
    scores = add(attention_scores(Q, K), bias)
    weights = [softmax_row(row, see) for row, see in zip(scores, mask, strict=True)]
    return mix(weights, V), weights


def apply_rope(x, positions, base=10000.0):
    turned = []
    for row, position in zip(x, positions, strict=True):
        new = [0.0] * len(row)
        for i in range(0, len(row), 2):
            angle = float(position) / base ** (i / len(row))
            u, v = float(row[i]), float(row[i + 1])
            new[i] = u * math.cos(angle) - v * math.sin(angle)
            new[i + 1] = u * math.sin(angle) + v * math.cos(angle)
        turned.append(new)
    return turned


def window_mask(n, window, causal=False):
    return [[abs(i - j) <= window and (j <= i or not causal) for j in range(n)] for i in range(n)]


def local_attention(Q, K, V, window, causal=False):
    return attention(Q, K, V, window_mask(len(Q), window, causal))[0]


def block_sparse_attention(Q, K, V, layout, block_size):
    mask = [
        [bool(layout[i // block_size][j // block_size]) for j in range(len(K))]
        for i in range(len(Q))
    ]
    return attention(Q, K, V, mask)[0]


def hash_buckets(x, rotations):
    buckets = []
    for row in linear(x, rotations):
        both = row + [-value for value in row]
        buckets.append(both.index(max(both)))
    return buckets


def hash_attention(Q, K, V, q_buckets, k_buckets):
    return attention(Q, K, V, [[a == b for b in k_buckets] for a in q_buckets])[0]


def route_heads(x, W_r, top_k):
    gates = []
    for row in linear(x, W_r):
        best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:top_k]
        gates.append(softmax_row(row, [i in best for i in range(len(row))]))
    return gates


def routed_multi_head_attention(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k):
    heads, _ = heads_of(x, x, W_q, W_k, W_v, num_heads)
    gates = route_heads(x, W_r, top_k)
    scaled = [
        [[entry * gates[i][h] for entry in row] for i, row in enumerate(head)]
        for h, head in enumerate(heads)
    ]
    return linear(merge_heads(scaled), W_o)


def merge_partial(m1, l1, o1, m2, l2, o2):
    m, total, output = [], [], []
    for i in range(len(m1)):
        top = max(float(m1[i]), float(m2[i]))
        a, b = (math.exp(float(x[i]) - top) if x[i] > -math.inf else 0.0 for x in (m1, m2))
        m.append(top)
        total.append(a * float(l1[i]) + b * float(l2[i]))
        output.append([a * float(p) + b * float(q) for p, q in zip(o1[i], o2[i], strict=True)])
    return m, total, output


def tiled_attention(Q, K, V, tile, causal=False):
    return attention(Q, K, V, causal_mask(len(Q), len(K)) if causal else None)[0]


def shifted_attention(Q, K, V):
    return attention(Q, K, V)[0]


def linear_attention(Q, K, V, causal=False):
    def phi(row):
        return [float(x) + 1 if x > 0 else math.exp(x) for x in row]

    rows = []
    for i, q in enumerate(Q):
        keys = range(i + 1 if causal else len(K))
        weights = [dot(phi(q), phi(K[j])) for j in keys]
        [mixed] = mix([weights], [V[j] for j in keys])
        rows.append([value / sum(weights) for value in mixed])
    return rows


def grouped_query_attention(Q, K, V, mask=None):
    h, g = len(Q), len(K)
    groups = [i // (h // g) for i in range(h)]
    pairs = [
        attention(Q[i], K[group], V[group], None if mask is None else mask[i])
        for i, group in enumerate(groups)
    ]
    return [output for output, _ in pairs], [weights for _, weights in pairs]


def softmax_backward(weights, d_weights):
    rows = []
    for w, dw in zip(weights, d_weights, strict=True):
        m = range(len(w))
        jacobian = [[float(w[j]) * ((i == j) - float(w[i])) for i in m] for j in m]
        rows.append([sum(jacobian[j][i] * float(dw[i]) for i in m) for j in m])
    return rows


def attention_backward(Q, K, V, d_output, mask=None):
    _, weights = attention(Q, K, V, mask)
    n, m, d_k, d_v = len(Q), len(K), len(Q[0]), len(V[0])
    dQ, dK, dV = zeros(n, d_k), zeros(m, d_k), zeros(m, d_v)
    for i in range(n):
        d_weights = [dot(d_output[i], V[j]) for j in range(m)]
        [d_scores] = softmax_backward([weights[i]], [d_weights])
        for j in range(m):
            for c in range(d_k):
                dQ[i][c] += d_scores[j] * float(K[j][c]) / math.sqrt(d_k)
                dK[j][c] += d_scores[j] * float(Q[i][c]) / math.sqrt(d_k)
            for c in range(d_v):
                dV[j][c] += weights[i][j] * float(d_output[i][c])
    return dQ, dK, dV


def zeros(rows, cols):
    return [[0.0] * cols for _ in range(rows)]


def layer_norm(x, gamma, beta, eps=1e-12):
    rows = []
    for row in x:
        mean = sum(map(float, row)) / len(row)
        variance = sum((float(value) - mean) ** 2 for value in row) / len(row)
        rows.append(
            [
                float(g) * (float(value) - mean) / math.sqrt(variance + eps) + float(b)
                for value, g, b in zip(row, gamma, beta, strict=True)
            ]
        )
    return rows


def gelu(x):
    return [
        [float(value) * (1 + math.erf(float(value) / math.sqrt(2))) / 2 for value in row]
        for row in x
    ]


def feed_forward(x, W_1, b_1, W_2, b_2):
    return linear(gelu(linear(x, W_1, b_1)), W_2, b_2)


def encoder_layer(x, params, num_heads, mask=None):
    p = params
    biases = (p["b_q"], p["b_k"], p["b_v"])
    heads, _ = heads_of(x, x, p["W_q"], p["W_k"], p["W_v"], num_heads, mask, biases)
    attended = linear(merge_heads(heads), p["W_o"], p["b_o"])
    x = layer_norm(add(x, attended), p["gamma_1"], p["beta_1"])
    worked = feed_forward(x, p["W_1"], p["b_1"], p["W_2"], p["b_2"])
    return layer_norm(add(x, worked), p["gamma_2"], p["beta_2"])


def sentence_embedding(hidden, mask):
    words = [row for row, word in zip(hidden, mask, strict=True) if word]
    mean = [sum(float(word[c]) for word in words) / len(words) for c in range(len(words[0]))]
    length = math.sqrt(sum(value * value for value in mean))
    return [value / length for value in mean]
