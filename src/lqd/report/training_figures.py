"""The course of a training run, from its log; and of several, with where they lead."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from lqd import statistics
from lqd.meta.validation import PANEL
from lqd.report.style import FULL, LOOKS, Width, drawn, legend, literal, plain_numbers, said, sized, tidy


@sized
def training(log, width: Width = FULL) -> Figure:
    """The course of a training run from its log: validation, wins against each hand-made rule, the optimiser."""
    if log["score"].isna().all() and log["sigma"].notna().any():
        return _not_validated(log, width)
    shape, height = ((4, 1), 7.6) if width.is_column else ((2, 2), 4.6)
    figure = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(*shape))
    validated = log[log["score"].notna()]
    _validation(axes[0], validated)
    for ax, measure in zip(axes[1:3], ("fitness", "novelty"), strict=True):
        for name in PANEL:
            ax.plot(validated["step"], validated[f"win_{measure}_{name}"], **drawn(name))
        ax.set(ylabel="held-out tasks won", title=f"{measure}, against", ylim=(-0.03, 1.03))
        ax.axhline(0.5, color="#cccccc", lw=1, zorder=0)
    legend(figure, PANEL)
    _internals(axes[3], log)
    imitated = (log["phase"] == "imitation").any()
    for ax in axes:
        ax.set_xlabel("rounds and meta-generations" if imitated else "meta-generations")
        tidy(ax)
    return figure


def _validation(ax, validated) -> None:
    step = validated["step"]
    if len(validated):
        first = validated["score"].iloc[0]
        low, high = first + validated["gain_low"], first + validated["gain_high"]
        ax.fill_between(step, low, high, color="#0072B2", alpha=0.2, lw=0, label="95 % of the gain since the start")
    ax.plot(step, validated["score"], "o-", ms=3, color="#0072B2", label="mean of the search")
    ax.plot(step, validated["best_score"], color="#777777", lw=1, ls="--", drawstyle="steps-post", label="best so far")
    ax.axhline(0.5, color="#cccccc", lw=1, zorder=0)
    ax.set(ylabel="held-out tasks won", title="objective, against the panel", ylim=(-0.03, 1.03))
    ax.legend()


def _not_validated(log, width: Width) -> Figure:
    """What the members reached on the tasks of their meta-generation, which are others each time, and the optimiser."""
    shape, height = ((3, 1), 5.8) if width.is_column else ((1, 3), 2.4)
    figure = Figure(figsize=(width.inches, height), layout="constrained")
    axes = np.ravel(figure.subplots(*shape))
    evolved = log[log["sigma"].notna()]
    for ax, measure in zip(axes, ("regret", "novelty"), strict=False):
        values = evolved[measure].where(evolved[measure] > 0)
        ax.plot(evolved["step"], values, ".", ms=3, color="#0072B2")
        ax.set(yscale="log", ylabel=f"{measure}, median", title=f"{measure} in training")
        if values.notna().any():
            plain_numbers(ax.yaxis)
    _internals(axes[2], log)
    for ax in axes:
        ax.set_xlabel("meta-generations")
        tidy(ax)
    said(figure, "Nothing was validated. Tasks and numbers of generations differ from one meta-generation to the next.")
    return figure


def _internals(ax, log) -> None:
    """How far the imitation is, and the step size of the evolution."""
    imitated, evolved = log[log["spearman_runs"].notna()], log[log["sigma"].notna()]
    lines = []
    if len(imitated):
        for column, colour, dashes in (("synthetic", "#12A5A0", "--"), ("runs", "#0072B2", "-")):
            label = f"rank correlation, {column}"
            lines += ax.plot(imitated["step"], imitated[f"spearman_{column}"], dashes, color=colour, label=label)
        ax.set(ylabel="agreement with the teacher", title="imitation", ylim=(min(0, ax.get_ylim()[0]), 1.0))
    if len(evolved):
        other = ax.twinx() if len(imitated) else ax
        lines += other.plot(evolved["step"], evolved["sigma"], color="#DF4123", ls=":", label="step size")
        other.set(ylabel="step size", ylim=(0, 1.25 * evolved["sigma"].max()))
        other.spines["top"].set_visible(False)
        ax.set_title("imitation and step size" if len(imitated) else "step size of the search")
    if len(lines) > 1:
        ax.legend(lines, [line.get_label() for line in lines])


class Course(NamedTuple):
    """Scores of a run on held-out tasks, the power law through them, and the gain of its last half."""

    step: Float[np.ndarray, " N"]
    score: Float[np.ndarray, " N"]
    fitted: statistics.PowerLaw
    others: list[statistics.PowerLaw]
    gain: tuple[float, float, float]

    def at(self, step) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the power law is at these steps, and between what 95 % of those of resampled residuals are."""
        others = np.stack([one(step) for one in self.others])
        low, high = np.quantile(others, [0.025, 0.975], axis=0)
        return self.fitted(step), low, high


def course(log) -> Course:
    """What the log of a training run says of its learning; the start is left out."""
    validated = log[log["score"].notna() & (log["meta_generation"] > 0)]
    step, score = (validated[name].to_numpy(np.float64) for name in ("meta_generation", "score"))
    return Course(step, score, *statistics.power_laws(step, score), statistics.late_gain(step, score))


RUNS = (("#DF4123", "s"), ("#1C9A63", "^"), ("#0072B2", "o"), ("#8B5579", "D"), ("#DCAF23", "P"), ("#4E301E", "p"))


@sized
def learning(found: tuple[Mapping[str, Course], int], width: Width = FULL) -> Figure:
    """Scores over meta-generations and the power laws through them, as far as the number given, with intervals."""
    courses, until = found
    inches = width.inches if width.is_column else 0.8 * width.inches
    figure = Figure(figsize=(inches, 0.7 * inches), layout="constrained")
    ax = figure.subplots()
    first = min(course.step.min() for course in courses.values())
    steps = np.geomspace(first, until, 200)
    for number, (name, course) in enumerate(courses.items()):
        colour, marker = LOOKS[name][:2] if name in LOOKS else RUNS[number % len(RUNS)]
        middle, low, high = course.at(steps)
        is_seen = steps <= course.step.max()
        ax.plot(course.step, course.score, marker, ms=3, color=colour, label=literal(name))
        ax.plot(steps[is_seen], middle[is_seen], color=colour, lw=1.3)
        ax.plot(steps[~is_seen], middle[~is_seen], color=colour, lw=1.3, ls="--")
        ax.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)
    ax.set(xscale="log", xlabel="meta-generations", ylabel="held-out tasks won", ylim=(0, 1))
    ax.axhline(0.5, color="#cccccc", lw=1, zorder=0)
    tidy(ax)
    plain_numbers(ax.xaxis)
    ax.legend()
    lines = "lines: a power law through them, dashed where nothing was measured"
    said(figure, f"markers: validation; {lines}; bands: 95 % of those through resampled residuals")
    return figure
