"""`lqd report`: from the folder of a bench to one page that holds everything.

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
from lqd.bench.verdicts import PAPER, counts, verdicts
from lqd.io import manifest
from lqd.io.files import flatten, write_bytes
from lqd.report import draw, style, template
from lqd.rules import catalogue, trained

HERE = importlib.resources.files("lqd") / "report" / "page"
LANDSCAPES = ("lqd-f", "lqd-n", "lqd-fn", "dns")  # whose populations the page shows
SCRIPTS = ("rules.js", "background.js", "explorer.js", "page.js")  # in this order
CAPTIONS = {
    "pareto": "Fitness against novelty on the training functions, both in units of Random's. Up and right is better.",
    "bars-train": "Every training function: fitness and novelty in units of Random's, QD score in the best rule's.",
    "bars-ood": "The six functions that no rule was trained on: fitness and novelty in units of Random's, QD score in "
    "the best rule's.",
    "grid": "LQD (F) against MAP-Elites over population sizes and dimensions.",
    "robots": "The best fitness so far on the robot tasks.",
    "robots-aggregate": "All robot tasks together: 0 is Random, 1 the best rule's median.",
    "diversity": "Novelty over time, relative to what MAP-Elites has at the end.",
    "ablation": "What LQD (F) makes of descriptors that say nothing.",
    "landscape": "How many individuals a newcomer of median fitness would outrank, anywhere in descriptor space.",
    "aggregate": "The middle half of all runs on the training functions, in each measure.",
    "ecdf": "Targets reached over time, as COCO shows it.",
    "profiles": "Share of runs that reach at least so much.",
    "animation": "Populations moving over their competition landscapes; bright is where a newcomer would survive.",
}
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def number(value: float | None) -> str:
    """A p-value, for people: 0.021, and powers of ten where it is below 0.001."""
    if value is None:
        return ""
    if 0 < abs(value) < 1e-3:
        digit, power = f"{value:.0e}".split("e")
        return f"{digit} \N{MULTIPLICATION SIGN} 10{str(int(power)).translate(SUPERSCRIPTS)}"
    return f"{value:.3f}"


def write(
    results: pathlib.Path, out: pathlib.Path | None = None, figures: dict[str, draw.Picture] | None = None
) -> pathlib.Path:
    """report.html in the folder, or the given file. Figures that were made already need not be made again."""
    path = out or pathlib.Path(results) / "report.html"
    write_bytes(path, page(Folder(results), figures).encode())
    return path


def page(folder: Folder, figures: dict[str, draw.Picture] | None = None) -> str:
    """All of it as one text; with all figures that the results allow if none are given."""
    script = '"use strict";\n' + "\n".join((HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    css = (HERE / "page.css").read_text(encoding="utf-8")
    judged = verdicts(folder)
    # A page that holds "</script" in a string would end there.
    data = json.dumps(_data(folder, judged), allow_nan=False).replace("<", "\\u003c")
    figures = draw.make_all(folder) if figures is None else figures
    parts = {
        "policy": f"default-src 'none'; img-src data:; worker-src blob:; script-src '{_hash(script)}'; "
        f"style-src '{_hash(css)}'",
        "style": css,
        "script": script,
        "data": data,
        "facts": _facts(folder),
        "counts": counts(judged),
        "small": _too_small(judged),
        "caveat": f'<p class="caveat">{html.escape(folder.caveat)}</p>' if folder.caveat else "",
        "figures": "\n".join(_figure(name, picture) for name, picture in figures.items()),
    }
    return template.fill((HERE / "page.html").read_text(encoding="utf-8"), parts)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _too_small(judged: list[dict[str, Any]]) -> str:
    """The claims that these runs are too small to judge, with the reasons."""
    claims = [row for row in judged if row["too_small"]]
    if not claims:
        return ""
    said = "".join(f"<li>{html.escape(row['claim'])} ({html.escape(row['too_small'])})</li>" for row in claims)
    title = f"What these runs are too small to judge: {len(claims)} {'claim' if len(claims) == 1 else 'claims'}"
    return f"<details><summary>{title}</summary><ul>{said}</ul></details>"


def _facts(folder: Folder) -> str:
    made = folder.manifest.get("made") or {}
    versions = ", ".join(f"{name} {version}" for name, version in (made.get("versions") or {}).items())
    said = [
        f"lqd bench --suite {', '.join(folder.manifest['suites'])} --preset {folder.manifest['preset']}",
        ", ".join(made.get("devices") or []),
        f"{made['seconds']:,.0f} s of computing" if made else "",
        versions,
        _commit(made.get("commit")),
        str(made.get("at", ""))[:10],
    ]
    return " &middot; ".join(html.escape(text) for text in said if text)


def _commit(commit: str | None) -> str:
    if commit is None:
        return ""
    return f"commit {manifest.short(commit)}" + " (with changes that were not committed)" * commit.endswith("+")


def _figure(name: str, picture: draw.Picture) -> str:
    if isinstance(picture, bytes):
        kind, content = "gif", picture
    else:
        buffer = io.BytesIO()
        picture.savefig(buffer, format="png", dpi=style.DPI)
        kind, content = "png", buffer.getvalue()
    caption = CAPTIONS[name] + (f" The paper's {PAPER[name]}." if name in PAPER else "")
    encoded = base64.b64encode(content).decode()
    return (
        f'<figure id="figure-{name}"><img alt="{html.escape(caption)}" src="data:image/{kind};base64,{encoded}">'
        f"<figcaption><b>{name}</b> {html.escape(caption)}</figcaption></figure>"
    )


def _data(folder: Folder, judged: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [row | {f"{name}_shown": number(row[name]) for name in ("p", "paired_p")} for row in judged]
    for row in rows:
        row["effect_shown"] = "" if row["effect"] is None else f"{row['effect']:+.2f}"
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
    return {"populations": populations, "networks": networks, "titles": catalogue.SHORT, "colours": style.COLOURS}


def _packed(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()


def _network(name: str) -> dict[str, Any]:
    rule = trained.rule(name)
    weights = {key: {"shape": value.shape, "data": _packed(value)} for key, value in flatten(rule.params).items()}
    return {"num_heads": rule.architecture.num_heads, "weights": weights}
