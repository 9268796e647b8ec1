"""`python -m manyheads`: four tokens of width eight go through four heads."""

from __future__ import annotations

import numpy as np

from .matrices import Matrix
from .multi_head import MultiHeadAttention
from .scaled_dot_product import causal_mask

TOKENS, WIDTH, HEADS = 4, 8, 4


def main() -> None:
    """Print the input, the output, what each head attends to, and the shapes on the way."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TOKENS, WIDTH))  # (n, d)
    layer = MultiHeadAttention(WIDTH, HEADS, rng)
    output, weights = layer(x)  # (n, d), (h, n, n)

    print(f"Multi-head attention: {TOKENS} tokens, d_model {WIDTH}, {HEADS} heads")
    print(f"Each head works in {WIDTH} / {HEADS} = {WIDTH // HEADS} columns of its own.")
    show(f"Input, {TOKENS} × {WIDTH}", x)
    show(f"Output, {TOKENS} × {WIDTH}", output)
    show("Weights of the first head: row i is how token i attends to the others", weights[0])

    causal, hidden = layer(x, causal_mask(TOKENS))
    show("The same head when no token may see a later one", hidden[0])

    print("\nChecks")
    check("the output has the shape of the input", output.shape == x.shape)
    check(
        "there are weights for each head, query and key", weights.shape == (HEADS, TOKENS, TOKENS)
    )
    check("each row of weights sums to 1", np.allclose(weights.sum(axis=-1), 1))
    check("with a causal mask, no later token has weight", not np.triu(hidden, k=1).any())
    check("with a causal mask, the last token still sees all", np.allclose(causal[-1], output[-1]))


def show(title: str, values: np.ndarray) -> None:
    """Print a title and the first five rows and columns of an array."""
    print(f"\n{title}\n{Matrix(values.tolist())}")


def check(sentence: str, holds: bool) -> None:
    """Print a sentence that is true; stop if it is not."""
    if not holds:
        raise SystemExit(f"  failed: {sentence}")
    print(f"  ok: {sentence}")


if __name__ == "__main__":
    main()
