"""From a training folder into the package: `python training/ship.py` copies the weights and writes their cards.

What was measured of the rules (`lqd bench --suite claims`) is added from results/claims, if it is there.
"""

import csv
import hashlib
import json
import pathlib
import shutil

import jax

import lqd
from lqd.io import manifest

ROOT = pathlib.Path(__file__).parent.parent
TRAINING, WEIGHTS = ROOT / "training", ROOT / "src" / "lqd" / "rules" / "weights"
FOLDERS = {
    "lqd-f": "lqd-f",
    "lqd-n": "lqd-n",
    "lqd-fn": "lqd-fn-sum",
    "lqd-f-paper": "lqd-f-paper",
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


def measured(name: str) -> dict:
    """What the claims bench found, by setting: against every hand-made rule."""
    path = ROOT / "results" / "claims" / "claims.json"
    if not path.exists():
        return {}
    content = json.loads(path.read_text())
    return {
        setting: {"preset": content["preset"], "setting": part["setting"]} | part["scores"][name]
        for setting, part in content["settings"].items()
        if name in part["scores"]
    }


def recipe(folder: pathlib.Path) -> str:
    """How a run came about, back to where it began: from a rule in the box, or from nothing."""
    made = json.loads((folder / "card.json").read_text())
    start = (made.get("warm_start") or {}).get("weights")
    if start is None:
        return made["recipe"]
    objective = made["config"]["objective"]
    form = f" ({objective['qd_form']})" if objective["name"] == "qd" else ""
    name = pathlib.Path(start).name
    shipped = [rule for rule, other in FOLDERS.items() if other == name]
    before = f"from `{shipped[0]}`" if shipped else f"after {recipe(TRAINING / name)}"
    return f"evolution for {objective['name']}{form} {before}"


def page(cards: list[dict]) -> str:
    """docs/weights.md."""
    lines = [
        "# The trained rules",
        "",
        "Made by `python training/ship.py` from the cards; `lqd.card(name)` has all of it. Weights are read from the "
        "installed package and checked against their SHA-256; nothing is downloaded.",
        "",
        "| rule | how it came about | parameters | descriptors | SHA-256 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for card in cards:
        lines.append(
            f"| `{card['name']}` | {card['recipe']} | {card['num_params']:,} | {card['descriptor_dims']} | "
            f"`{card['sha256'][:16]}` |"
        )
    marked = ", ".join(f"`{card['name']}`" for card in cards if "commit_note" in card)
    if marked:
        lines += [
            "",
            "A `+` after a commit means that the code had changes that were not committed when the run was made, and "
            "nobody recorded them ([what follows](trust.md#where-results-come-from)). A session of each of these "
            f"carries it: {marked}.",
        ]
    for card in cards:
        session = card["sessions"][-1]
        commit = manifest.short(session["commit"])
        where = ", ".join(session["devices"])
        lines += [
            "",
            f"## {card['name']}",
            "",
            f"{card['recipe'].capitalize()}; {card['num_meta_generations']} meta-generations, the best on validation "
            f"tasks after {card['best_meta_generation']}. {where}, jax {session['versions']['jax']}, "
            f"{card['time_s']:.0f} s in all, commit `{commit}`, seed {card['config']['seed']}. "
            f"Feature recipe {card['feature_recipe']}.",
        ]
        if len(card["validation_curve"]) > 1:
            steps = ", ".join(f"{row['score']:.3f} ({row['meta_generation']})" for row in card["validation_curve"])
            lines += ["", f"Validation score (after so many meta-generations): {steps}."]
        for found in card["measured"].values():
            setting = found["setting"]
            lines += [
                "",
                f"Measured on fresh instances of the training functions, {setting['num_evaluations']:,} evaluations, "
                f"{setting['num_seeds']} seeds, {found['num_filled']:.0f} slots filled "
                f"(`lqd bench --suite claims --preset {found['preset']}`):",
                "",
                "| against | fitter on | novelty, of theirs | QD score, of theirs | their filled slots |",
                "| --- | --- | --- | --- | --- |",
            ]
            lines += [
                f"| `{other}` | {100 * row['win_rate_fitness']:.1f} % | {float(row['ratio_novelty']):.3g} | "
                f"{float(row['ratio_qd']):.3g} | {row['num_filled']:.0f} |"
                for other, row in found["against"].items()
            ]
    lines += ["", "## Limits of all of them", "", *(f"- {limit}" for limit in LIMITS), ""]
    return "\n".join(lines)


def ship(name: str) -> dict:
    """Copies the weights and writes their card."""
    folder = TRAINING / FOLDERS[name]
    made = json.loads((folder / "card.json").read_text())
    weights = WEIGHTS / f"{name}.safetensors"
    shutil.copyfile(folder / "rule.safetensors", weights)
    config = made.pop("config")
    made["recipe"] = recipe(folder)
    card = {
        "name": name,
        "sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "architecture": config["architecture"],
        "num_params": sum(leaf.size for leaf in jax.tree.leaves(lqd.load(weights).params)),
        "feature_recipe": config["architecture"]["recipe"],
        "descriptor_dims": "any" if config["architecture"]["recipe"] == 2 else config["architecture"]["descriptor_dim"],
        **made,
        **next((note for one in made["sessions"] if (note := manifest.note(one["commit"]))), {}),
        "validation_curve": curve(folder),
        "measured": measured(name),
        "limits": LIMITS,
        "config": config,
    }
    (WEIGHTS / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    print(name, card["sha256"][:16], f"{weights.stat().st_size / 1024:.0f} kB")
    return card


if __name__ == "__main__":
    WEIGHTS.mkdir(exist_ok=True)
    (ROOT / "docs" / "weights.md").write_text(page([ship(name) for name in FOLDERS]), encoding="utf-8")
