"""What a run records: the columns of its log, and the card that travels with its rule."""

from typing import Any

from lqd.meta import suite
from lqd.meta.config import Config, to_dict
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.objective import NAMES as MEASURES
from lqd.meta.validation import PANEL, Verdict

COMPARED = tuple(f"{what}_{m}_{p}" for m in MEASURES for p in PANEL for what in ("win", "effect", "ratio"))
COLUMNS = (
    "step", "phase", "meta_generation", "stage", "time_s", "seconds",
    "loss", "spearman_synthetic", "kept_synthetic", "spearman_runs", "kept_runs",
    "sigma", "mean_norm", "meta_fitness_best", "meta_fitness_spread", "regret", "novelty", "num_failed",
    "score", "gain", "gain_low", "gain_high", "best_score", *COMPARED,
)  # fmt: skip


def columns(config: Config) -> tuple[str, ...]:
    """The columns of the log; with several families, or further entries to validate on, also the score of each."""
    parts = suite.parts_of_training([family.name for family in config.families])
    more = (*parts, *(entry.name for entry in config.validation.on))
    entries = (suite.TRAINING, *more) if more else ()
    return (*COLUMNS, *(f"score_{name}" for name in entries))


def compared(verdict: Verdict) -> dict[str, float | None]:
    """A validation as columns of the log."""
    return {f"score_{name}": score for name, score in verdict.scores.items()} | {
        f"{what}_{measure}_{name}": value
        for (measure, name), found in verdict.comparisons.items()
        if measure in MEASURES
        for what, value in zip(("win", "effect", "ratio"), found, strict=True)
    }


def summary(verdict: Verdict) -> dict[str, Any]:
    """A validation for a card: against each rule of the panel, in each measure."""
    scores = {"scores": verdict.scores} if verdict.scores else {}
    return scores | {
        "score": verdict.score,
        "num_tasks": len(verdict.wins),
        "against": {
            measure: {name: verdict.comparisons[measure, name]._asdict() for name in PANEL}
            for measure in dict.fromkeys(measure for measure, _ in verdict.comparisons)
        },
    }


def recipe(config: Config) -> str:
    """How the weights were made, in words."""
    begun = {"none": "random weights"}.get(config.init, f"the weights of {config.init}")
    if config.init in TEACHERS:
        imitated = f"imitation of the hand-made rule '{config.init}' by gradient descent"
        return f"{imitated}, then evolution" if config.num_meta_generations else imitated
    return f"evolution from {begun}"


def card(config: Config, notes: dict[str, Any], num_meta_generations: int) -> dict[str, Any]:
    """Everything to be known about a rule from this run, including what it was warm-started from."""
    warm_start = None
    if config.init in TEACHERS:
        warm_start = {"imitated": config.init} | notes.get("imitation", {})
    elif config.init != "none":
        warm_start = {"weights": config.init, "sha256": config.init_sha256}
    return {
        "recipe": recipe(config),
        "warm_start": warm_start,
        "objective": to_dict(config)["objective"]["own"] or config.objective.name,
        "num_meta_generations": num_meta_generations,
        "best_meta_generation": notes.get("best_meta_generation"),
        "validation": notes.get("best_validation"),
        "last": {"score": notes.get("last_score")} | notes.get("last_gain", {}),
        "config": to_dict(config),
        "time_s": round(notes["time_s"], 1),
        "sessions": notes["sessions"],
    }
