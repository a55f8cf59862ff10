"""`lqd figure` and `lqd report`: from the folder of a bench to pictures and one page that holds everything.

The page needs nothing else: pictures, numbers, the learned rules' weights and the script are inside, and its content
policy lets it load nothing. Names from the results are put in as text, never as HTML.
"""

import base64
import hashlib
import html
import importlib.resources
import io
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from lqd.bench.results import Folder
from lqd.bench.verdicts import verdicts as judge
from lqd.errors import InvalidInput, unknown
from lqd.io.files import flatten, write_bytes
from lqd.report import bench_figures, landscape_figures, style
from lqd.rules import catalogue, trained

HERE = importlib.resources.files("lqd") / "report" / "page"
NAMES = (*bench_figures.FIGURES, "animation", "all")
LANDSCAPES = ("lqd-f", "lqd-n", "lqd-fn", "dns")  # whose populations the page shows
CAPTIONS = {
    "pareto": "Fitness against novelty on the training functions, both in units of Random's. Up and right is better.",
    "bars-train": "Every training function: fitness, novelty and QD score.",
    "bars-ood": "The six functions that no rule was trained on.",
    "grid": "LQD (F) against MAP-Elites over population sizes and dimensions.",
    "robots": "The best fitness so far on the robot tasks.",
    "robots-aggregate": "All robot tasks together.",
    "diversity": "Novelty over time, relative to what MAP-Elites has at the end.",
    "ablation": "What LQD (F) makes of descriptors that say nothing.",
    "landscape": "What a newcomer of median fitness would be given, anywhere in descriptor space.",
    "aggregate": "The middle half of all runs on the training functions, in each measure.",
    "ecdf": "Targets reached over time, as COCO shows it.",
    "profiles": "Share of runs that reach at least so much.",
}


def verdicts(results: pathlib.Path) -> list[dict[str, Any]]:
    """The paper's claims, as far as the results in the folder can answer them."""
    return judge(Folder(results))


def number(value: float | None) -> str:
    """A p-value or an effect size, for people."""
    if value is None:
        return ""
    return f"{value:.1e}" if 0 < abs(value) < 1e-3 else f"{value:.3f}"


def draw(name: str, results: pathlib.Path, out: pathlib.Path | None = None) -> list[pathlib.Path]:
    """A figure (PNG and PDF, the animation as GIF) or all that the results allow; returns the files."""
    if name not in NAMES:
        raise unknown("figure", name, [*NAMES, "training"])
    folder = Folder(results)
    if name != "all":
        return _save(name, folder, None if name == "animation" else bench_figures.FIGURES[name](folder), out)
    if out is not None:
        raise InvalidInput("out is for one figure; all figures go to the folder's own `figures`.")
    return [path for one, figure in _available(folder) for path in _save(one, folder, figure)]


def _save(name: str, folder: Folder, figure, out: pathlib.Path | None = None) -> list[pathlib.Path]:
    if name == "animation":
        path = out or folder.path / "figures" / "animation.gif"
        write_bytes(path, landscape_figures.animation(folder))
        return [path]
    if out is not None and pathlib.Path(out).suffix not in (".png", ".pdf", ".svg"):
        raise InvalidInput(f"out must end in .png, .pdf or .svg, got {str(out)!r}.")
    paths = [out] if out is not None else [folder.path / "figures" / f"{name}.{kind}" for kind in ("png", "pdf")]
    for path in paths:
        style.save(figure, path)
    return paths


def _available(folder: Folder) -> Iterator[tuple[str, Any]]:
    """Names of the figures whose results are there, each with the figure (None: the animation)."""
    for name, make in bench_figures.FIGURES.items():
        try:
            yield name, make(folder)
        except InvalidInput:
            continue
    if (folder.path / "landscape" / "lqd-f.safetensors").exists():
        yield "animation", None


# The page


def write(results: pathlib.Path, out: pathlib.Path | None = None) -> pathlib.Path:
    """report.html in the folder, or the given file."""
    path = out or pathlib.Path(results) / "report.html"
    write_bytes(path, page(Folder(results)).encode())
    return path


def page(folder: Folder) -> str:
    """All of it as one text."""
    script, style = ((HERE / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    # A page that holds "</script" in a string would end there.
    data = json.dumps(_data(folder), allow_nan=False).replace("<", "\\u003c")
    parts = {
        "policy": f"default-src 'none'; img-src data:; script-src '{_hash(script)}'; style-src '{_hash(style)}'",
        "style": style,
        "script": script,
        "data": data,
        "facts": _facts(folder),
        "caveat": f'<p class="caveat">{html.escape(folder.caveat)}</p>' if folder.caveat else "",
        "figures": "\n".join(_figure(folder, name, figure) for name, figure in _available(folder)),
    }
    text = (HERE / "page.html").read_text(encoding="utf-8")
    for name, value in parts.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    return text


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(folder: Folder) -> str:
    made = folder.manifest.get("made") or {}
    versions = ", ".join(f"{name} {version}" for name, version in (made.get("versions") or {}).items())
    said = [
        f"lqd bench --suite {', '.join(folder.manifest['suites'])} --preset {folder.manifest['preset']}",
        ", ".join(made.get("devices") or []),
        f"{made['seconds']:,.0f} s of computing" if made else "",
        versions,
        str(made.get("at", ""))[:10],
    ]
    return " &middot; ".join(html.escape(text) for text in said if text)


def _figure(folder: Folder, name: str, figure) -> str:
    if name == "animation":
        kind, content = "gif", landscape_figures.animation(folder)
        caption = "Populations moving over their competition landscapes; bright is where a newcomer would survive."
    else:
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=110)
        kind, content, caption = "png", buffer.getvalue(), CAPTIONS[name]
    encoded = base64.b64encode(content).decode()
    return (
        f'<figure id="figure-{name}"><img alt="{html.escape(caption)}" src="data:image/{kind};base64,{encoded}">'
        f"<figcaption><b>{name}</b> {html.escape(caption)}</figcaption></figure>"
    )


def _data(folder: Folder) -> dict[str, Any]:
    rows = [row | {"p": number(row["p"]), "effect": number(row["effect"])} for row in judge(folder)]
    return {"verdicts": rows, "table": list(_table(folder)), "landscape": _landscape(folder)}


def _table(folder: Folder) -> Iterator[dict[str, Any]]:
    """Medians of every rule on every function."""
    for part, known in folder.parts.items():
        for rule in known["rules"]:
            table = folder.table(part, rule)
            medians = {measure: np.median(values, axis=0) for measure, values in table.items()}
            for i, (function, dim) in enumerate(folder.columns(part)):
                row = {measure: _rounded(values[i]) for measure, values in medians.items()}
                yield {"part": part, "function": function, "dim": dim, "rule": rule} | row


def _rounded(value: float) -> float | None:
    return float(f"{value:.4g}") if np.isfinite(value) else None


def _landscape(folder: Folder) -> dict[str, Any] | None:
    """Populations by rule and frame with the shares that a newcomer outranks, and the networks to score them with."""
    if not all((folder.path / "landscape" / f"{rule}.safetensors").exists() for rule in LANDSCAPES):
        return None
    populations = {}
    for rule in LANDSCAPES:
        found = folder.landscape(rule)
        populations[rule] = {
            "generation": found["generation"].tolist(),
            "end": float(found["axis"][-1]),
            "resolution": len(found["axis"]),
            "fitness": _packed(found["fitness"]),
            "descriptor": _packed(found["descriptor"]),
            "share": base64.b64encode(np.rint(255 * found["share"]).astype(np.uint8).tobytes()).decode(),
            "num": found["fitness"].shape[1],
        }
    networks = {name: _network(name) for name in ("lqd-f", "lqd-n", "lqd-fn")}
    return {"populations": populations, "networks": networks, "titles": catalogue.SHORT}


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def _network(name: str) -> dict[str, Any]:
    rule = trained.rule(name)
    weights = {key: {"shape": value.shape, "data": _packed(value)} for key, value in flatten(rule.params).items()}
    return {"num_heads": rule.architecture.num_heads, "weights": weights}
