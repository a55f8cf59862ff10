"""From a training folder into the package: `python training/ship.py` copies the weights and writes their cards.

What was measured of the rules (`lqd bench --suite claims`) is added from results/claims, if it is there.
"""

import csv
import hashlib
import json
import pathlib
import shutil

ROOT = pathlib.Path(__file__).parent.parent
TRAINING, WEIGHTS = ROOT / "training", ROOT / "src" / "lqd" / "weights"
FOLDERS = {
    "lqd-f": "lqd-f",
    "lqd-n": "lqd-n",
    "lqd-imitates-ns": "imitate-ns",
    "lqd-imitates-dns": "imitate-dns",
}
LIMITS = [
    "Trained on 22 BBOB functions of 2 to 12 dimensions with 2 descriptors, 128 individuals, 32 offspring, 256 "
    "generations, and iso-line variation. It accepts any other setting; how well it does there has to be measured.",
    "Descriptors are seen relative to the spread of the population, resolved to a hundredth of it: in a population "
    "with one far outlier, small differences between the others vanish.",
]


def curve(folder: pathlib.Path) -> list[dict]:
    """The validations of a run: meta-generation, seconds, score, and the gain over the start."""
    with (folder / "log.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["score"]]
    return [
        {"meta_generation": int(row["meta_generation"])}
        | {name: round(float(row[name]), 4) for name in ("time_s", "score", "gain")}
        for row in rows
    ]


def measured(name: str) -> dict | None:
    path = ROOT / "results" / "claims" / "claims.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    return {"setting": content["setting"], "against": content["scores"].get(name)}


def ship(name: str) -> None:
    folder = TRAINING / FOLDERS[name]
    made = json.loads((folder / "card.json").read_text())
    weights = WEIGHTS / f"{name}.safetensors"
    shutil.copyfile(folder / "rule.safetensors", weights)
    config = made.pop("config")
    start = made.get("warm_start") or {}
    if "weights" in start:
        start["name"] = next(n for n, f in FOLDERS.items() if pathlib.Path(start["weights"]).name == f)
    card = {
        "name": name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "architecture": config["architecture"],
        "feature_recipe": config["architecture"]["recipe"],
        "descriptor_dims": "any" if config["architecture"]["recipe"] == 2 else config["architecture"]["descriptor_dim"],
        **made,
        "validation_curve": curve(folder),
        "measured": measured(name),
        "limits": LIMITS,
        "config": config,
    }
    (WEIGHTS / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    print(name, card["sha256"][:16], f"{weights.stat().st_size / 1024:.0f} kB")


if __name__ == "__main__":
    WEIGHTS.mkdir(exist_ok=True)
    for each in FOLDERS:
        ship(each)
