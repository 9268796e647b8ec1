"""A one-layer encoder and a one-layer decoder that reads it by cross-attention.

Vaswani et al. 2017, arXiv:1706.03762, figure 1, with the normalisation before each block.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..scaled_dot_product import causal_mask
from .adam import fit
from .layers import Params, cross_entropy, embed, feed_forward, layer_norm, linear, multi_head

PAD, START, END = 0, 1, 2
MATRICES = ("W_q", "W_k", "W_v", "W_o")


@dataclass(frozen=True)
class Task:
    """Pairs of texts to learn from, and how they become numbers.

    Attributes:
        letters: the alphabet.
        source_length, target_length: the longest texts, with the end mark.
        pair: draws a source and a target text from a random generator.
    """

    letters: str
    source_length: int
    target_length: int
    pair: Callable[[np.random.Generator], tuple[str, str]]

    @property
    def characters(self) -> str:
        """All characters by number: padding, start, end, then the letters."""
        return "·^$" + self.letters

    def sources(self, texts: Sequence[str]) -> np.ndarray:
        """B texts -> (B, source_length) numbers, each text with its end mark, padded.

        Raises:
            ValueError: a text that is too long, or has a character outside the alphabet.
        """
        ids = np.full((len(texts), self.source_length), PAD)
        for row, text in zip(ids, texts, strict=True):
            numbers = [self.characters.find(c, END + 1) for c in text] + [END]
            if len(numbers) > self.source_length or -1 in numbers:
                raise ValueError(
                    f"{text!r}: at most {self.source_length - 1} of the characters {self.letters!r}"
                )
            row[: len(numbers)] = numbers
        return ids

    def targets(self, texts: Sequence[str]) -> np.ndarray:
        """B texts -> (B, target_length + 1) numbers, from start mark to end mark, padded."""
        ids = np.full((len(texts), self.target_length + 1), PAD)
        ids[:, 0] = START
        for row, text in zip(ids, texts, strict=True):
            numbers = [self.characters.index(c) for c in text] + [END]
            row[1 : len(numbers) + 1] = numbers[: self.target_length]
        return ids

    def batch(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Random pairs: sources (size, source_length), targets (size, target_length + 1)."""
        sources, targets = zip(*(self.pair(rng) for _ in range(size)), strict=True)
        return self.sources(sources), self.targets(targets)


@dataclass
class EncoderDecoder:
    """A model of one task.

    Attributes:
        task: what it reads and writes.
        params: name → array; the cross-attention's are `cross.W_q` … `cross.W_o`.
        num_heads: h, in each of its three attentions.
        reach: how far the encoder's attention looks, in characters; None for everywhere. With a
            small reach, what stands at a place of the memory is known, so that the
            cross-attention's map shows what is read.
        scaled: False leaves out the division by √d_k.
        history: name → (records, …), how the training went: see `train`.
    """

    task: Task
    params: Params
    num_heads: int
    reach: int | None = None
    scaled: bool = True
    history: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict each next character.

        Args:
            source: (B, m) numbers.
            target: (B, n) numbers, from the start mark.

        Returns:
            Logits (B, n, vocabulary) and the cross-attention's weights (B, h, n, m).
        """
        memory, visible, _ = self._encode(source)
        logits, weights, _ = self._decode(target, memory, visible)
        return logits, weights

    def write(self, texts: Sequence[str]) -> list[str]:
        """What the model makes of B texts, each character the likeliest one."""
        memory, visible, _ = self._encode(self.task.sources(texts))
        written = np.full((len(texts), 1), START)
        for _ in range(self.task.target_length):
            logits, _, _ = self._decode(written, memory, visible)
            written = np.append(written, logits[:, -1:].argmax(-1), axis=1)
        lines = ["".join(self.task.characters[i] for i in row[1:]) for row in written]
        return [line.partition(self.task.characters[END])[0] for line in lines]

    def alignment(self, text: str) -> tuple[str, str, np.ndarray]:
        """Where the decoder looks while it writes.

        Args:
            text: a source text of m − 1 characters.

        Returns:
            The text that is read, with its end mark "$" (m characters); the text that is written,
            with its end mark (n characters); the cross-attention's weights (h, n, m): row i is the
            look that writes character i.
        """
        written = self.write([text])[0]
        source, target = self.task.sources([text]), self.task.targets([written])
        weights = self(source, target[:, :-1])[1][0]  # (h, target_length, source_length)
        read, written = f"{text}$", f"{written}$"[: self.task.target_length]
        return read, written, weights[:, : len(written), : len(read)]

    def exact(self, samples: int = 200, seed: int = 777) -> float:
        """The share of unseen texts that come out without any mistake."""
        rng = np.random.default_rng(seed)
        pairs = [self.task.pair(rng) for _ in range(samples)]
        written = self.write([source for source, _ in pairs])
        return float(np.mean([w == t for w, (_, t) in zip(written, pairs, strict=True)]))

    def _encode(self, source: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable]:
        params = self.params
        visible = (source != PAD)[:, None, None, :]  # (B, m) -> (B, 1, 1, m)
        near = visible
        if self.reach is not None:
            places = np.arange(source.shape[1])
            near = visible & (np.abs(places[:, None] - places) <= self.reach)
        x, embed_back = embed(params, "letters", "source_places", source)
        u, norm_1_back = layer_norm(params, "encoder.norm_1", x)
        a, _, self_back = multi_head(params, "encoder", u, u, self.num_heads, near, self.scaled)
        x = x + a
        u, norm_2_back = layer_norm(params, "encoder.norm_2", x)
        a, wide_back = feed_forward(params, "encoder", u)
        memory, norm_3_back = layer_norm(params, "encoder.norm_3", x + a)

        def backward(d_memory: np.ndarray, gradients: Params) -> None:
            d = norm_3_back(d_memory, gradients)
            d = d + norm_2_back(wide_back(d, gradients), gradients)
            d_q, d_kv = self_back(d, gradients)  # u is read as queries and as keys and values
            d = d + norm_1_back(d_q + d_kv, gradients)
            embed_back(d, gradients)

        return memory, visible, backward

    def _decode(
        self, target: np.ndarray, memory: np.ndarray, visible: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Callable]:
        params, h = self.params, self.num_heads
        causal = causal_mask(target.shape[1])
        x, embed_back = embed(params, "letters", "target_places", target)
        u, norm_1_back = layer_norm(params, "decoder.norm_1", x)
        a, _, self_back = multi_head(params, "decoder", u, u, h, causal, self.scaled)
        x = x + a
        u, norm_2_back = layer_norm(params, "decoder.norm_2", x)
        a, weights, cross_back = multi_head(params, "cross", u, memory, h, visible, self.scaled)
        x = x + a
        u, norm_3_back = layer_norm(params, "decoder.norm_3", x)
        a, wide_back = feed_forward(params, "decoder", u)
        u, norm_4_back = layer_norm(params, "decoder.norm_4", x + a)
        logits, out_back = linear(params, "out", u)

        def backward(d_logits: np.ndarray, gradients: Params) -> np.ndarray:
            d = norm_4_back(out_back(d_logits, gradients), gradients)
            d = d + norm_3_back(wide_back(d, gradients), gradients)
            d_u, d_memory = cross_back(d, gradients)
            d = d + norm_2_back(d_u, gradients)
            d_q, d_kv = self_back(d, gradients)
            d = d + norm_1_back(d_q + d_kv, gradients)
            embed_back(d, gradients)
            return d_memory

        return logits, weights, backward

    def loss_and_gradients(self, source: np.ndarray, target: np.ndarray) -> tuple[float, Params]:
        """The mean loss over the characters of a batch, and all its gradients by hand.

        Args:
            source: (B, m) numbers.
            target: (B, n + 1) numbers, from the start mark.

        Returns:
            The loss, and name → gradient for every parameter.
        """
        memory, visible, encoder_back = self._encode(source)
        logits, _, decoder_back = self._decode(target[:, :-1], memory, visible)
        loss, d_logits = cross_entropy(logits, target[:, 1:], target[:, 1:] != PAD)
        gradients: Params = {}
        encoder_back(decoder_back(d_logits, gradients), gradients)
        return loss, gradients


def new_params(task: Task, d: int, wide: int, rng: np.random.Generator) -> Params:
    """Random parameters: matrices normal with standard deviation 1/√d_in, norms 1, biases 0."""

    def normal(*shape: int, fan_in: int = d) -> np.ndarray:
        return (rng.normal(size=shape) / math.sqrt(fan_in)).astype(np.float32)

    vocabulary = len(task.characters)
    params = {
        "letters": normal(vocabulary, d),
        "source_places": normal(task.source_length, d),
        "target_places": normal(task.target_length, d),
        "out": normal(d, vocabulary),
    }
    for part in ("encoder", "decoder", "cross"):
        params |= {f"{part}.{W}": normal(d, d) for W in MATRICES}
    for part, norms in (("encoder", 3), ("decoder", 4)):
        params[f"{part}.W_1"] = normal(d, wide)
        params[f"{part}.b_1"] = np.zeros(wide, np.float32)
        params[f"{part}.W_2"] = normal(wide, d, fan_in=wide)
        params |= {f"{part}.norm_{i + 1}": np.ones(d, np.float32) for i in range(norms)}
    return params


def train(
    task: Task,
    probe: tuple[str, str],
    d: int = 48,
    num_heads: int = 1,
    reach: int | None = None,
    scaled: bool = True,
    change: Callable[[Params], None] | None = None,
    steps: int = 400,
    learning_rate: float = 3e-3,
    seed: int = 0,
    every: int = 20,
) -> EncoderDecoder:
    """Train a new model.

    Args:
        task: what to learn.
        probe: a pair of texts whose alignment is written down during training.
        d: width.
        num_heads: h.
        reach: see `EncoderDecoder`.
        scaled: see `EncoderDecoder`.
        change: changes the fresh parameters in place before training, to break them.
        steps: batches of 64 pairs.
        learning_rate: the largest; see `adam.rate_at`.
        seed: of the parameters and of the batches.
        every: how many steps between two records.

    Returns:
        The model; its history has, per record, `step`, `loss`, `accuracy` (share of right
        characters in 64 fixed pairs), `entropy` (h,) of the cross-attention on them, as a share of
        the largest possible, `grad_W_q`, `grad_W_k`, `grad_W_v`, `grad_W_o` (h,) the norms of each
        head's part of the cross-attention's gradients, and `alignment` (h, n, m) on the probe.
    """
    rng = np.random.default_rng(seed)
    model = EncoderDecoder(task, new_params(task, d, 2 * d, rng), num_heads, reach, scaled)
    if change:
        change(model.params)
    pairs = task.batch(np.random.default_rng(5), 64)
    shown = task.sources(probe[:1]), task.targets(probe[1:])
    size = len(probe[1]) + 1, len(probe[0]) + 1

    def observe(_: Params, gradients: Params) -> dict[str, np.ndarray]:
        alignment = model(shown[0], shown[1][:, :-1])[1][0, :, : size[0], : size[1]]
        return (
            _observed(model, *pairs)
            | _gradient_norms(gradients, num_heads)
            | {"alignment": alignment}
        )

    model.history = fit(
        model.params,
        lambda _: model.loss_and_gradients(*task.batch(rng, 64)),
        observe,
        steps,
        learning_rate,
        every,
    )
    return model


def _observed(
    model: EncoderDecoder, source: np.ndarray, target: np.ndarray
) -> dict[str, np.ndarray]:
    from ..seeing_heads import attention_entropy

    logits, weights = model(source, target[:, :-1])
    counted = target[:, 1:] != PAD  # (B, n)
    right = logits.argmax(-1) == target[:, 1:]
    largest = np.log((source != PAD).sum(-1))[:, None, None]  # (B, 1, 1)
    entropy = (attention_entropy(weights) / largest).swapaxes(0, 1)  # (B, h, n) -> (h, B, n)
    return {"accuracy": right[counted].mean(), "entropy": entropy[:, counted].mean(-1)}


def _gradient_norms(gradients: Params, num_heads: int) -> dict[str, np.ndarray]:
    from ..gradients_and_debugging import head_norms

    norms = {W: head_norms(gradients[f"cross.{W}"], num_heads) for W in MATRICES[:3]}
    norms["W_o"] = head_norms(gradients["cross.W_o"].T, num_heads)  # its rows belong to heads
    return {f"grad_{W}": norm for W, norm in norms.items()}
