"""A real sentence encoder in NumPy, all-MiniLM-L6-v2, with its attention left open.

Six layers of twelve heads, d = 384, d_k = 32 (Wang et al. 2020, arXiv:2002.10957; Reimers and
Gurevych 2019, arXiv:1908.10084). Whatever function you pass as `attention` runs in all 72 heads:

    >>> from manyheads import minilm
    >>> result = minilm.encode("The animal was too tired.")
    >>> result.weights.shape  # (layers, B, h, n, n)
    (6, 1, 12, 8, 8)

Layers and heads are counted from 0 in arrays, as everything in NumPy; a text that says
"layer 4 head 2" means `weights[3, :, 1]`. The weights are rounded to eight bits and the vocabulary
is cut to the common English words; `assets/NOTICE` tells where they come from.
"""

import io
import json
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

# Nothing after chapter 04, so that chapter 05's exercise can use the model and hide its answers.
from .multi_head import merge_heads, split_heads
from .scaled_dot_product import attention as textbook_attention

Attention = Callable[..., tuple[np.ndarray, np.ndarray | None]]

_ASSETS = resources.files("manyheads") / "assets"
_ABSENT = -1  # the row of a token whose vector the small asset leaves out


class WordPiece:
    """BERT's uncased tokenizer: words, cut into the longest pieces that the vocabulary has.

    Args:
        vocabulary: all pieces, in the order of their numbers; a piece that continues a word
            begins with `##`.
        rows: (len(vocabulary),) the row of each piece's vector, −1 where it has none.

    Wu et al. 2016, arXiv:1609.08144, section 4.1.
    """

    def __init__(self, vocabulary: Sequence[str], rows: np.ndarray):
        self.published = set(vocabulary)
        self.row = {
            piece: int(r) for piece, r in zip(vocabulary, rows, strict=True) if r != _ABSENT
        }

    def words(self, sentence: str) -> list[str]:
        """Lower-case words and single punctuation marks, without accents."""
        text = "".join(" " if c in "\t\n\r" else c for c in sentence)
        text = "".join(c for c in text if unicodedata.category(c)[0] != "C" and c != "\ufffd")
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        text = re.sub(r"([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])", r" \1 ", text)
        return "".join(f" {c} " if _is_punctuation(c) else c for c in text).split()

    def __call__(self, sentence: str) -> list[str]:
        """The tokens of one sentence, from [CLS] to [SEP]; a word without a vector is warned of."""
        tokens, missing = ["[CLS]"], []
        for word in self.words(sentence):
            pieces = _longest_pieces(word, self.published)
            if any(piece not in self.row for piece in pieces):
                missing.append(word)
                pieces = _longest_pieces(word, self.row)
            tokens += pieces
        if missing:
            warnings.warn(
                f"not in this small model's vocabulary: {', '.join(dict.fromkeys(missing))}. "
                "It spells such a word from shorter pieces, so its vector means little; "
                "use more common words.",
                stacklevel=2,
            )
        return [*tokens, "[SEP]"]


def _is_punctuation(c: str) -> bool:
    # ASCII symbols such as $ and ^ split words too, though Unicode does not call them punctuation.
    return unicodedata.category(c)[0] == "P" or (
        c.isascii() and c.isprintable() and not c.isalnum()
    )


def _longest_pieces(word: str, known: Iterable[str]) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((e for e in ends if prefix + word[start:e] in known), None)
        if end is None or len(word) > 100:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


@dataclass(frozen=True)
class Encoded:
    """What the model made of B sentences, padded to n tokens.

    Attributes:
        tokens: B lists of tokens, from [CLS] to [SEP], without padding.
        mask: boolean (B, n), True where there is a token.
        hidden: (7, B, n, 384) what goes into the first layer, then what each layer gives.
        weights: (6, B, 12, n, n) the attention weights, or None where `attention` gave none.
        embeddings: (B, 384) one vector of length 1 per sentence.
    """

    tokens: list[list[str]]
    mask: np.ndarray
    hidden: np.ndarray
    weights: np.ndarray | None
    embeddings: np.ndarray


class MiniLM:
    """The encoder: its tokenizer, its parameters, and a forward pass with your attention in it.

    Args:
        arrays: name → array; `vocabulary` (its pieces as text), `rows`, `words`, `places`,
            `segment`, `gamma_0`, `beta_0` and for each layer i `i/W_q` … `i/beta_2`.

    Attributes:
        layers: six dicts with the keys `W_q b_q W_k b_k W_v b_v W_o b_o gamma_1 beta_1 W_1 b_1 W_2
            b_2 gamma_2 beta_2`, matrices (d_in, d_out): the `params` of `encoder_layer`.
        num_heads: 12, in each layer.
        tokenize: sentence → list of tokens.
    """

    num_heads = 12
    num_layers = 6

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        vocabulary = bytes(arrays["vocabulary"]).decode().split("\n")
        self.tokenize = WordPiece(vocabulary, arrays["rows"])
        self._words, self._places, self._segment, self._gamma, self._beta = (
            arrays[name] for name in ("words", "places", "segment", "gamma_0", "beta_0")
        )
        self.layers = [
            {name.partition("/")[2]: a for name, a in arrays.items() if name.startswith(f"{i}/")}
            for i in range(self.num_layers)
        ]

    def embed(self, sentences: str | Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """What goes into the first layer: word + place + segment vectors, normalised.

        Args:
            sentences: one sentence or B of them.

        Returns:
            x (B, n, 384) float32, and mask, boolean (B, n), False where a sentence is padded.
        """
        return self._embed([self.tokenize(s) for s in _as_list(sentences)])

    def _embed(self, tokens: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
        n = max(map(len, tokens))
        if n > len(self._places):
            raise ValueError(
                f"a sentence of {n} tokens; this model reads at most {len(self._places)}"
            )
        mask = np.arange(n) < np.array([[len(t)] for t in tokens])  # (B, n)
        rows = np.full(mask.shape, self.tokenize.row["[PAD]"])
        rows[mask] = [self.tokenize.row[piece] for t in tokens for piece in t]
        x = self._words[rows] + self._places[:n] + self._segment  # (B, n) -> (B, n, d)
        x -= x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self._gamma + self._beta, mask

    def encode(
        self,
        sentences: str | Sequence[str],
        attention: Attention = textbook_attention,
        head_mask: np.ndarray | None = None,
        replace: Mapping[tuple[int, int], np.ndarray | Callable[[int], np.ndarray]] | None = None,
    ) -> Encoded:
        """Reads sentences with the given attention in every head.

        Args:
            sentences: one sentence or B of them; n is the longest's number of tokens.
            attention: a function (Q, K, V, mask) → (output, weights); Q, K and V are
                (B, h, n, d_k), mask is boolean (B, 1, 1, n), or None where nothing is padded.
                Its weights may be None.
            head_mask: boolean (6, 12), False for a head to be silenced (its output is 0).
            replace: {(layer, head): A}, counted from 0: that head uses the weights A (n, n)
                instead of its own; A may be a function that makes them from n.

        Returns:
            an `Encoded` with tokens, mask, hidden states, weights and embeddings.

        Raises:
            ValueError: no sentence or too long a one; a head_mask, a replacement or a result of
                `attention` of the wrong shape; a replaced layer or head that does not exist.
        """
        # Not above: exercise 11 shows the model and hides this.
        from .minilm_layer import after_attention, project, sentence_embedding

        tokens = [self.tokenize(s) for s in _as_list(sentences)]
        x, mask = self._embed(tokens)
        visible = None if mask.all() else mask[:, None, None, :]  # (B, n) -> (B, 1, 1, n)
        keep = self._checked_head_mask(head_mask)
        replace = self._checked_replacements(replace or {}, x.shape[1])
        hidden, weights = [x], []
        for i, p in enumerate(self.layers):
            Q, K, V = (
                split_heads(project(x, p[f"W_{r}"], p[f"b_{r}"]), self.num_heads) for r in "qkv"
            )  # (B, n, d) -> (B, h, n, d_k)
            output, A = _checked(attention(Q, K, V, visible), Q.shape, x.dtype)
            for (_, head), given in ((k, g) for k, g in replace.items() if k[0] == i):
                output[:, head] = given.astype(x.dtype) @ V[:, head]  # (n, n) @ (B, n, d_k)
                if A is not None:
                    A[:, head] = given
            output *= keep[i][:, None, None]
            x = after_attention(x, merge_heads(output), p)  # (B, h, n, d_k) -> (B, n, d)
            hidden.append(x)
            weights.append(A)
        have_weights = all(A is not None for A in weights)
        return Encoded(
            tokens=tokens,
            mask=mask,
            hidden=np.stack(hidden),
            weights=np.stack(weights) if have_weights else None,
            embeddings=sentence_embedding(x, mask),
        )

    def _checked_head_mask(self, head_mask: np.ndarray | None) -> np.ndarray:
        shape = self.num_layers, self.num_heads
        keep = np.ones(shape, bool) if head_mask is None else np.asarray(head_mask, bool)
        if keep.shape != shape:
            raise ValueError(f"head_mask has shape {keep.shape}, not (layers, heads) = {shape}")
        return keep

    def _checked_replacements(self, replace: Mapping, n: int) -> dict[tuple[int, int], np.ndarray]:
        made = {}
        for (layer, head), given in replace.items():
            if not (0 <= layer < self.num_layers and 0 <= head < self.num_heads):
                raise ValueError(f"there is no layer {layer}, head {head}: both count from 0")
            A = np.asarray(given(n) if callable(given) else given)
            if A.shape[-2:] != (n, n):
                raise ValueError(f"weights of shape {A.shape} for {n} tokens, not ({n}, {n})")
            made[layer, head] = A
        return made


def _as_list(sentences: str | Sequence[str]) -> list[str]:
    listed = [sentences] if isinstance(sentences, str) else list(sentences)
    if not listed:
        raise ValueError("no sentence to read")
    return listed


def _checked(result: tuple, shape: tuple[int, ...], dtype: np.dtype) -> tuple:
    output, weights = result
    output = np.array(output, dtype)  # copies: the model must not write into the caller's arrays
    if output.shape != shape:
        raise ValueError(f"attention gave an output of shape {output.shape}, not {shape}")
    if weights is not None:
        weights = np.array(weights, dtype)
        expected = (*shape[:-1], shape[-2])
        if weights.shape != expected:
            raise ValueError(f"attention gave weights of shape {weights.shape}, not {expected}")
    return output, weights


def load(path: str | Path | bytes | None = None) -> MiniLM:
    """The model, from the asset in the package or from another one.

    Args:
        path: an asset's path, or its bytes (in a browser); None for the package's own, which is
            read once.

    Returns:
        a `MiniLM`.
    """
    if path is None:
        return _packaged()
    source = io.BytesIO(path) if isinstance(path, bytes) else path
    with np.load(source) as stored:
        return MiniLM(dequantised({name: stored[name] for name in stored.files}))


@cache
def _packaged() -> MiniLM:
    return load((_ASSETS / "minilm-int8.npz").read_bytes())


def dequantised(stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """An asset's arrays as float32: a matrix of small integers times its two vectors of scales."""
    arrays = {}
    for name, a in stored.items():
        if a.dtype == np.int8:
            row, column = (stored[f"{name}/{s}"].astype(np.float32) for s in ("row", "column"))
            arrays[name] = a * row * column
        elif not name.endswith(("/row", "/column")):
            arrays[name] = a.astype(np.float32) if a.dtype == np.float16 else a
    return arrays


def encode(
    sentences: str | Sequence[str],
    attention: Attention = textbook_attention,
    head_mask: np.ndarray | None = None,
    replace: Mapping[tuple[int, int], np.ndarray | Callable[[int], np.ndarray]] | None = None,
) -> Encoded:
    """Reads sentences with the package's model: see `MiniLM.encode`."""
    return load().encode(sentences, attention, head_mask, replace)


def sentences(kind: str) -> list:
    """Sentences written for this course, every word of which the model knows.

    Args:
        kind: one of
            "plain": 60 sentences;
            "pronouns": 20 dicts with `template` (`{}` stands for a word), `words` (two), and
                `nouns` (two): with words[i] the template's "it" means nouns[i];
            "paraphrases": 30 triples: a sentence, a paraphrase in other words, a distractor that
                shares its words;
            "bank": pairs of a sense, "river" or "money", and a sentence with the word "bank".

    Returns:
        a new list.

    Raises:
        ValueError: another kind.
    """
    kinds = json.loads((_ASSETS / "sentences.json").read_text(encoding="utf-8"))
    if kind not in kinds:
        raise ValueError(f"no sentences of kind {kind!r}; there are {', '.join(kinds)}")
    return kinds[kind]


def reference() -> tuple[list[str], np.ndarray, np.ndarray]:
    """What the published runtime makes of some sentences, computed once and stored.

    Returns:
        the sentences (B of them); the embeddings (B, 384) that the published code gives with this
        asset's rounded weights; those that it gives with the full-precision weights.
    """
    with np.load(io.BytesIO((_ASSETS / "minilm-reference.npz").read_bytes())) as stored:
        listed = bytes(stored["sentences"]).decode().split("\n")
        return listed, stored["rounded"], stored["full"]
