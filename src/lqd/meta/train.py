"""What `lqd train`, `lqd imitate` and `lqd.train` do: settle the config, find an earlier state, run, show, draw."""

import contextlib
import dataclasses
import os
import pathlib
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lqd import checks
from lqd.errors import InvalidInput, unknown
from lqd.io import terminal
from lqd.meta import chunks, initial_weights, presets, trainer
from lqd.meta import config as configs
from lqd.meta.config import Config
from lqd.meta.imitation.teachers import TEACHERS
from lqd.meta.objective import OWN
from lqd.meta.store import Saved, Store
from lqd.meta.trainer import Outcome, TrainingProgress


def train(
    *,
    out: str | os.PathLike[str],
    preset: str | None = None,
    resume: bool = False,
    add_stage: Sequence[str] = (),
    time_limit_s: float | None = None,
    save_every_s: float = trainer.SAVE_EVERY_S,
    tensorboard: bool = False,
    wandb: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Outcome:
    """Discovers a competition rule, and writes it with its states, log, card and curve to the folder `out`.

    `preset` is smoke, small (the default), reference or paper; every number in it can be replaced by a keyword:
    objective, init, num_meta_generations, meta_population_size, seed, ... (`lqd train --help` lists them). The
    objective may be a function, `(fitness (N,), descriptor (N, D)) -> number`, for a final population; its
    parameters may also ask, by name, for measures of the whole run. `tasks` says what to train on: families of tasks,
    by name or your own (`lqd.task_family`), with shares; `shapes` in which sizes; `validation_on` what else to validate
    on. With `resume` a run continues from where it stopped, and may be lengthened (`num_meta_generations`,
    `add_stage`).
    """
    return _train(
        pathlib.Path(out), preset, resume, tuple(add_stage), settings, evolve=True, time_limit_s=time_limit_s,
        save_every_s=save_every_s, tensorboard=tensorboard, wandb=wandb, quiet=quiet,
    )  # fmt: skip


def imitate(
    rule: str | None = None,
    *,
    out: str | os.PathLike[str],
    preset: str | None = None,
    resume: bool = False,
    time_limit_s: float | None = None,
    save_every_s: float = trainer.SAVE_EVERY_S,
    tensorboard: bool = False,
    wandb: str | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Outcome:
    """Fits the transformer to the ranks that a hand-made rule gives: a training run without meta-generations.

    The rule is ns, dns, ga or me; by default ns, or that of the run to resume.
    """
    if rule is not None and rule not in TEACHERS:
        raise unknown("rule to imitate", rule, TEACHERS)
    init = {} if rule is None else {"init": rule}
    return _train(
        pathlib.Path(out), preset, resume, (), settings | init, evolve=False, time_limit_s=time_limit_s,
        save_every_s=save_every_s, tensorboard=tensorboard, wandb=wandb, quiet=quiet,
    )  # fmt: skip


def _train(out, preset, resume, stages, settings, *, evolve, time_limit_s, save_every_s, tensorboard, wandb, quiet):
    import jax

    checks.time_limit(time_limit_s)
    checks.real("save_every_s", save_every_s)
    num_devices, is_free = jax.device_count(), "chunk_size" not in settings
    store, leads = Store(out), jax.process_index() == 0
    goes_on = resume and preset is None and bool(store.paths())  # then what is asked for changes the saved config
    wanted = None if goes_on else _wanted(preset or "small", settings, stages, evolve)  # before a folder is made
    if wanted is not None and is_free:
        wanted = chunks.fitted(wanted, num_devices)
    with store.lock() if leads else contextlib.nullcontext():
        saved = store.load()
        if saved is not None and wanted is not None and is_free:
            wanted = chunks.kept(wanted, saved.config)
        if saved is not None and resume:
            config = _continued(out, saved, wanted if preset is not None else None, settings, stages)
            chunks.check_begun(config, num_devices)
        elif wanted is None:
            raise InvalidInput(f"the saved states in {out} have disappeared since this began.")
        elif saved is not None:
            raise _occupied(out, saved, wanted)
        else:
            config = wanted
            if not quiet and leads and num_devices > 1 and config.stages:
                tell(f"{num_devices} devices share the members, {config.chunk_size} at a time on each (chunk_size).")
        _agree(0 if saved is None else saved.counter)
        with _display(config, saved, quiet or not leads) as show:
            outcome = trainer.run(
                config, out, saved, time_limit_s=time_limit_s, save_every_s=save_every_s,
                tensorboard=out / "tensorboard" if tensorboard else None, wandb=wandb, progress=show,
            )  # fmt: skip
        if leads:
            draw(out)
    if not quiet and leads:
        _say(config, outcome)
    return outcome


def again(config: Config, out: pathlib.Path, quiet: bool = False) -> Outcome:
    """Repeats a whole run from its config, in a folder of its own."""
    config.check()
    store = Store(out)
    with store.lock(), _display(config, None, quiet) as show:
        outcome = trainer.run(config, out, None, progress=show)
        draw(out)
    return outcome


def _wanted(preset: str, settings: dict[str, Any], stages: Sequence[str], evolve: bool) -> Config:
    config = presets.preset(preset) if evolve else presets.imitation_preset(preset)
    config = _with(config, settings if evolve else {"init": "ns"} | settings, stages)
    config.check()
    return config


def _with(config: Config, settings: dict[str, Any], stages: Sequence[str]) -> Config:
    """The config with the settings asked for; initial weights bring their architecture along."""
    init = settings.get("init")
    config = presets.override(config, settings)
    for text in stages:
        config = presets.add_stage(config, text)
    if init is None or init == "none" or init in TEACHERS:
        return config
    rule, digest = initial_weights.read(init)
    return presets.begin_with(config, str(init), digest, rule.architecture)


def _continued(out, saved: Saved, wanted: Config | None, settings, stages: Sequence[str]) -> Config:
    """The config to continue with: the preset's, or the saved one changed as asked, if that is still the same run."""
    given = {name: value for name, value in settings.items() if name != "init" or str(value) != saved.config.init}
    config = wanted or _asked_before(saved, given, stages) or _with(saved.config, given, stages)
    found = configs.differences(saved.config, config, saved.num_meta_generations)
    if found:
        raise InvalidInput(f"--out {out} holds another run; it differs in {'; '.join(found)}. Give another folder.")
    config.check()
    return config


def _asked_before(saved: Saved, given: dict[str, Any], stages: Sequence[str]) -> Config | None:
    """The saved config, if the same words made it: given again after an interruption, they add no stage twice."""
    num_before = len(saved.config.stages) - len(stages)
    if not stages or num_before < 0 or saved.num_meta_generations >= saved.config.num_meta_generations:
        return None
    before = dataclasses.replace(saved.config, stages=saved.config.stages[:num_before])
    try:
        again = _with(before, given, stages)
    except InvalidInput:  # these settings do not fit the run as it was before, so they did not make it
        return None
    return again if again.stages == saved.config.stages else None


def _occupied(out, saved: Saved, wanted: Config) -> InvalidInput:
    found = configs.differences(saved.config, wanted, saved.num_meta_generations)
    if found:
        return InvalidInput(f"--out {out} holds another run; it differs in {'; '.join(found)}. Give another folder.")
    done, total = saved.num_meta_generations, saved.config.num_meta_generations
    return InvalidInput(
        f"--out {out} holds this run, {done} of {total} meta-generations done: give --resume to continue, or another "
        f"folder to start over."
    )


def _agree(counter: int) -> None:
    """Checks that all processes continue from the same state; only then may the first one write new ones."""
    import jax

    if jax.process_count() == 1:
        return
    import numpy as np
    from jax.experimental import multihost_utils

    counters = multihost_utils.process_allgather(np.asarray(counter))
    if len(set(counters.tolist())) > 1:
        raise InvalidInput(
            f"the processes found different states ({counters.tolist()} steps): --out must be a folder that all share."
        )


@contextlib.contextmanager
def _display(config: Config, saved: Saved | None, quiet: bool) -> Iterator[Callable[[TrainingProgress], None] | None]:
    """Progress bars: imitation, then evolution, with seconds per step, the validation score and the time left."""
    if quiet:
        yield None
        return
    with terminal.progress() as bars:
        totals = {"imitation": config.num_rounds, "evolution": config.num_meta_generations}
        done = {"imitation": saved.num_rounds, "evolution": saved.num_meta_generations} if saved else {}
        names = {"imitation": f"imitating {config.init}", "evolution": f"evolving for {_named(config)}"}
        rows = {
            phase: bars.add_task(names[phase], total=total, completed=done.get(phase, 0), facts=terminal.COMPILING)
            for phase, total in totals.items()
            if total
        }

        def show(progress: TrainingProgress) -> None:
            facts = [f"{progress.seconds:.2f} s each"]
            if progress.score is not None:
                facts.append(f"wins {progress.score:.1%}")
            bars.update(rows[progress.phase], completed=progress.done, facts=facts)

        yield show


def draw(folder: pathlib.Path, out: pathlib.Path | None = None, width: str = "full") -> pathlib.Path:
    """The curves of a training run, from its log."""
    from lqd.report import style, training_figures

    (log,), out = _logs([folder]), _picture(out or folder / "curve.png")
    style.save(training_figures.training(log, style.WIDTHS[width]), out)
    return out


def draw_learning(
    folders: Sequence[pathlib.Path], until: int, out: pathlib.Path | None = None, width: str = "full"
) -> tuple[pathlib.Path, list[str]]:
    """Draws the learning curves of training runs with where they lead; returns also a line on each."""
    from lqd.report import style, training_figures

    until, out = checks.whole("until", until, 1), _picture(out or folders[0] / "learning.png")
    courses = {}
    for folder, log in zip(folders, _logs(folders), strict=True):
        try:
            courses[folder.name] = training_figures.course(log)
        except ValueError as error:
            raise InvalidInput(f"{folder}: {error}. Train longer, or with a lower --validation-every.") from error
    style.save(training_figures.learning((courses, until), style.WIDTHS[width]), out)
    lines = []
    for name, course in courses.items():
        middle, low, high = (float(value) for value in course.at(until))
        gain, least, most = course.gain
        lines.append(
            f"{name}: {course.score[-1]:.3f} after {course.step[-1]:,.0f} meta-generations; its last half added "
            f"{gain:+.3f} ({least:+.3f} to {most:+.3f}); a power law leads to {middle:.3f} ({low:.3f} to {high:.3f}) "
            f"after {until:,}"
        )
    return out, lines


def _logs(folders: Sequence[pathlib.Path]) -> list:
    from lqd.meta import log

    for folder in folders:
        if not (folder / "log.csv").is_file():
            raise InvalidInput(f"{folder} is not the folder of a training run: it has no log.csv.")
    return [log.read(folder / "log.csv") for folder in folders]


def _picture(out: pathlib.Path) -> pathlib.Path:
    if out.suffix not in (".png", ".pdf", ".svg"):
        raise InvalidInput(f"--out must end in .png, .pdf or .svg, got {out}.")
    return out


def _say(config: Config, outcome: Outcome) -> None:
    """The result in a few lines."""
    card = outcome.card
    if outcome.stopped_by:
        tell(f"Stopped by {outcome.stopped_by}; --resume continues from here.")
    imitated = card["warm_start"] if config.init in TEACHERS else None
    if imitated and "spearman_runs" in imitated:
        tell(
            f"Imitation of {config.init}: rank correlation {imitated['spearman_runs']:.3f} on populations of held-out "
            f"runs, {imitated['spearman_synthetic']:.3f} on synthetic ones. It keeps {imitated['kept_runs']:.1%} of "
            f"what {config.init} keeps."
        )
    found = card["validation"]
    if found and config.num_meta_generations == 0:
        _table(found, ("fitness", "novelty"))
    elif found:
        name, last = config.objective.name, card["last"]
        tell(
            f"Best rule: after {card['best_meta_generation']} meta-generations. Against the panel of "
            f"rules it wins {found['score']:.1%} of {found['num_tasks']} held-out tasks in {_named(config)}"
            f"{f' (the {config.validation.aggregate} of the scores below)' if 'scores' in found else ''}."
        )
        _table(found, (name,) if name in found["against"] else ("fitness", "novelty"), _named(config))
        if scores := found.get("scores"):
            tell(f"Scores: {', '.join(f'{name} {value:.1%}' for name, value in scores.items())}.")
        tell(
            f"Since the start: {last['gain']:+.1%} in the last validation "
            f"(95 % interval {last['gain_low']:+.1%} to {last['gain_high']:+.1%})."
        )
    print(f"Wrote {outcome.folder}/ (rule.safetensors, card.json, log.csv, curve.png)")


def tell(text: str) -> None:
    """Prints a sentence or two, in lines that fit a terminal of 80 columns."""
    print(textwrap.fill(text, 79, break_long_words=False, break_on_hyphens=False))


def _named(config: Config) -> str:
    """What is maximised, by the name that the user knows: for a function, its own."""
    own = config.objective.own
    return getattr(own, "__name__", type(own).__name__) if callable(own) else config.objective.name


def _table(found: dict[str, Any], measures: tuple[str, ...], own: str = OWN) -> None:
    """Held-out tasks won against each rule of the panel, with the effect size and the median ratio."""
    for measure in measures:
        name = own if measure == OWN else measure
        for rule, row in found["against"][measure].items():
            won, effect, ratio = (row[key] for key in ("win_rate", "effect_size", "ratio"))
            against = f"  {name:8.28} against {rule:7} won {won:6.1%}   effect {effect:+.2f}"
            print(against if ratio is None else f"{against}   ratio {terminal.number(ratio)}")
