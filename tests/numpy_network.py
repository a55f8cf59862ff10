"""The networks of recipes 2 and 3 once more, from their docstrings, in NumPy."""

import jax
import numpy as np

INF = np.inf


def numpy_pseudo_random(descriptor):
    """The docstring of `recipe2`, one individual after the other, on whole numbers of Python."""
    relative = descriptor - descriptor.min(0)
    scaled = relative / relative.max() * np.float32(1024)
    found = []
    for row in scaled:
        mixed, along, weights = 0, 0.0, [0.6180339887**c for c in range(len(row))]
        for value, weight in zip(row, weights, strict=True):
            mixed = ((mixed ^ int(value)) + 0x9E3779B9) % 2**32
            mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B % 2**32
            mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35 % 2**32
            mixed ^= mixed >> 16
            along += weight * (float(value) % 1) / sum(weights)
        found.append((mixed >> 17) * 2**15 + along * 2**15)
    return np.array(found)


def numpy_last(params, num_heads, fitness, descriptor, further=None):
    """The last layer, normed, by the docstring of `recipe2`: float64, filled slots alone, one after the other. With the
    columns that are read, and what recipe 3 reads `further`."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    keep = fitness > -INF
    f, d = fitness[keep].astype(np.float64), descriptor[keep].astype(np.float64)
    num = len(f)
    d = d - d.mean(0)
    d = d / np.sqrt((d**2).sum(1).mean())
    squared = ((d[:, None] - d) ** 2).sum(-1) + 1e-4
    rank = np.array([((f < one).sum() + (f <= one).sum()) / num - 1 for one in f])
    nearest = np.where(np.eye(num, dtype=bool), INF, squared).min(axis=1)
    second = numpy_pseudo_random(descriptor[keep])
    order = [(-f[i], -nearest[i], -second[i], i) for i in range(num)]
    sees = [[[j for j in range(num) if j != i], [j for j in range(num) if order[j] < order[i]]] for i in range(num)]
    least = np.array([[min(squared[i, who], default=16.0) for who in sees[i]] for i in range(num)])
    tokens = np.column_stack([(f - f.mean()) / f.std(), rank, 1 + np.log(np.minimum(least, 16.0)) / 4])
    if further is not None:
        tokens = np.column_stack([tokens, further[keep]])

    def norm(q, x):
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * q["scale"] + q["bias"]

    x = tokens @ p["embed"]["weight"]
    for index in range(p["layers"]["sharpness"].shape[0]):
        layer = jax.tree.map(lambda leaf, index=index: leaf[index], p["layers"])
        value = (norm(layer["norm_attention"], x) @ layer["value"]["weight"] + layer["value"]["bias"]).reshape(
            num, num_heads, -1
        )
        mixed, density = np.zeros_like(value), np.zeros((num, 2, num_heads))
        density[:, 1] = 1 + np.log(16) / 4
        for head in range(num_heads):
            whom, is_local = divmod(head % 4, 2)
            for i in range(num):
                who = sees[i][whom]
                if not who:
                    continue
                sharp = np.clip(np.exp(layer["sharpness"][head]) / (least[i, whom] if is_local else 1), 1e-3, 1e4)
                weights = np.exp(-sharp * (squared[i, who] - least[i, whom]))
                mixed[i, head] = weights @ value[who, head] / weights.sum()
                soft = np.clip(least[i, whom] - np.log(weights.sum()) / sharp, 1e-4, 16)
                density[i, :, head] = np.log(weights.sum()), 1 + np.log(soft) / 4
        x = x + density.reshape(num, -1) @ layer["density"]["weight"]
        x = x + mixed.reshape(num, -1) @ layer["out"]["weight"] + layer["out"]["bias"]
        h = norm(layer["norm_mlp"], x) @ layer["up"]["weight"] + layer["up"]["bias"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ layer["down"]["weight"] + layer["down"]["bias"]
    return norm(p["norm"], x), tokens


def numpy_forward(params, num_heads, fitness, descriptor):
    """Scores of recipe 2."""
    last, _ = numpy_last(params, num_heads, fitness, descriptor)
    scores = np.full(len(fitness), -INF)
    scores[fitness > -INF] = (last @ np.asarray(params["score"]["weight"]) + np.asarray(params["score"]["bias"]))[:, 0]
    return scores
