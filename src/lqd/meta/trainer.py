"""Discovering a rule: imitation if asked for, then meta-generations, with validation, states, logs and stopping.

What is computed depends on the config and the number of the round or meta-generation alone. Everything about the
clock (time limits, signals, how often a state is saved) only decides where a run is cut, and a cut run continues bit
for bit from where it stopped.

With several processes each one runs this same code, and all must see the same folder; the first one validates, logs
and writes.
"""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lqd.errors import Unreadable
from lqd.evolution import compile_time
from lqd.io import files, manifest
from lqd.io.throttle import Throttle
from lqd.meta import generation, initial_weights, run_record
from lqd.meta.config import Config, Stage, check_division
from lqd.meta.generation import Generation
from lqd.meta.imitation import fitting
from lqd.meta.log import Log
from lqd.meta.stopping import Stop
from lqd.meta.store import Saved, Store
from lqd.meta.strategy import State
from lqd.meta.validation import Suite, Validator, gain
from lqd.rules import trained
from lqd.rules.learned.rule import Learned

SAVE_EVERY_S = 30.0


@dataclasses.dataclass(frozen=True)
class TrainingProgress:
    """How far a run has come, for a progress bar or a user's log."""

    phase: str
    done: int
    total: int
    seconds: float
    score: float | None


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a call of `train`: the best rule so far, its folder, and why the call ended (None: all was
    done)."""

    rule: Learned
    folder: pathlib.Path
    num_meta_generations: int
    stopped_by: str | None
    card: dict[str, Any]


def run(
    config: Config,
    out: pathlib.Path,
    saved: Saved | None = None,
    *,
    time_limit_s: float | None = None,
    save_every_s: float = SAVE_EVERY_S,
    tensorboard: pathlib.Path | None = None,
    wandb: str | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> Outcome:
    """Continues from `saved`, or starts from the beginning, until all is done or something stops it."""
    for stage in config.stages:
        check_division(stage.meta_population_size, config.chunk_size, jax.device_count())
        generation.strategy_of(config, stage)  # says what is missing or does not fit, before anything compiles
    leads = jax.process_index() == 0
    with contextlib.ExitStack() as stack:
        log = None
        if leads:
            resume_at = ("step", -1 if saved is None else saved.counter)
            log = Log(
                out / "log.csv", run_record.columns(config), tensorboard=tensorboard, wandb=wandb, resume_at=resume_at
            )
            stack.enter_context(log)
        stop = stack.enter_context(Stop(time_limit_s))
        trainer = _Trainer(config, Store(out), saved, log, stop, save_every_s, progress or (lambda _: None))
        return trainer.run()


class _Trainer:
    """One call of `run`: the state of the run on the host, and the steps that advance it."""

    def __init__(
        self,
        config: Config,
        store: Store,
        saved: Saved | None,
        log: Log | None,
        stop: Stop,
        save_every_s: float,
        progress: Callable[[TrainingProgress], None],
    ):
        self.config, self.store, self.log, self.stop = config, store, log, stop
        self.progress = progress
        self.save_sometimes = Throttle(save_every_s, share=1.0)
        self.arrays: dict[str, np.ndarray] = dict(saved.arrays) if saved else {}
        self.notes: dict[str, Any] = dict(saved.notes) if saved else {"sessions": [], "time_s": 0.0}
        self.num_rounds = saved.num_rounds if saved else 0
        self.num_done = saved.num_meta_generations if saved else 0
        self.leads = jax.process_index() == 0
        self.begun = time.perf_counter()
        self.compiling = compile_time.Clock()
        self.session = {"begun": manifest.now(), "first_step": self.step, **manifest.environment()}
        self.is_saved = saved is not None
        self._validator: Validator | Suite | None = None

    @property
    def step(self) -> int:
        return self.num_rounds + self.num_done

    @property
    def time_s(self) -> float:
        return self.notes["time_s"] + time.perf_counter() - self.begun

    def run(self) -> Outcome:
        if self.leads and "best" in self.arrays and not self._has_rule():
            self._write_rule(trained.RULE, self.arrays["best"])
        with self.compiling:
            if self.config.num_rounds > self.num_rounds:
                self._imitate()
            if not self._is_stopped():
                self._evolve()
        if not self.is_saved and self.arrays:
            self._save()
        return self._outcome()

    # --- imitation ---

    def _imitate(self) -> None:
        config = self.config.imitation
        setting = (config, self.config.init, self.config.architecture)
        key = jax.random.fold_in(jax.random.key(np.uint32(self.config.seed)), generation.IMITATING)
        key_held_out, key_rounds = jax.random.split(key)
        if self.num_rounds:
            state = files.unflatten(_under("imitation", self.arrays))
        else:
            state = fitting.init(fitting.prepared(initial_weights.random_rule(self.config).params))
        held_out = fitting.held_out(key_held_out, *setting) if self.leads else None
        while self.num_rounds < config.num_rounds:
            if self._is_stopped():
                return
            begun = time.perf_counter()
            state, measures = fitting.run_round(key_rounds, state, self.num_rounds, *setting, held_out)
            self.stop.wait(state)
            if self.stop.interrupted:
                return
            self.num_rounds += 1
            self.arrays = {f"imitation.{name}": value for name, value in files.flatten(state).items()}
            row = {"phase": "imitation"} | {name: float(value) for name, value in measures.items()}
            if self.num_rounds == config.num_rounds:
                flat = np.asarray(generation.flat_from(Learned(fitting.params_of(state), self.config.architecture)))
                self.arrays = {"start": flat}
                self.notes["imitation"] = {name: float(value) for name, value in measures.items()}
                row |= self._validate(flat)
            self._after_step(row, time.perf_counter() - begun, config.num_rounds)

    # --- evolution ---

    def _evolve(self) -> None:
        if "start" not in self.arrays:
            self.arrays = {"start": initial_weights.weights(self.config)}
            self._write_row({"phase": "start"} | self._validate(self.arrays["start"]), 0.0)
        at, program = -1, None
        states: list[State] = []
        while self.num_done < self.config.num_meta_generations:
            if self._is_stopped():
                return
            begun = time.perf_counter()
            number, stage = self.config.stage_at(self.num_done)
            if program is None or number != at:
                at, program = number, Generation(self.config, stage)
                states = program.place(self._strategy_state(stage))
            states, report = program(states, self.num_done)
            self.stop.wait(states)
            if self.stop.interrupted:
                return  # nothing of this meta-generation is kept: the last state remains
            self.num_done += 1
            kept = {name: value for name, value in self.arrays.items() if not name.startswith("strategy.")}
            self.arrays = kept | {f"strategy.{name}": value for name, value in _to_host(states[0]).items()}
            row = {"phase": "evolution", "stage": at} | {name: float(value) for name, value in report.items()}
            if self._is_due():
                row |= self._validate(self.arrays["strategy.mean"])
            self._after_step(row, time.perf_counter() - begun, self.config.num_meta_generations)

    def _strategy_state(self, stage: Stage) -> dict[str, np.ndarray]:
        """The meta-optimiser's state: as saved, or its initial one."""
        left = _under("strategy", self.arrays)
        state = left or _to_host(generation.strategy_of(self.config, stage).init(self.arrays["start"]))
        if jax.process_count() == 1:
            return state
        from jax.experimental import multihost_utils

        # Each process imitated for itself: on different hardware the last bits could differ.
        return _to_host(multihost_utils.broadcast_one_to_all(state))

    def _is_due(self) -> bool:
        every = self.config.validation.every
        return every > 0 and (self.num_done % every == 0 or self.num_done == self.config.num_meta_generations)

    def _validate(self, flat: np.ndarray) -> dict[str, Any]:
        """Judges the rule with these weights, and keeps it if it is the best so far."""
        if not self.leads or not self.config.validation.every:
            return {}
        if self._validator is None:  # not before it is needed: the panel takes a while
            folder = self.store.folder
            training = Validator(self.config, folder / "validation.safetensors")
            is_suite = self.config.validation.on or len(self.config.families) > 1
            self._validator = Suite(training, self.config, folder) if is_suite else training
        verdict = self._validator(flat)
        if "first_wins" not in self.arrays:
            self.arrays["first_wins"] = verdict.wins
        gained = gain(verdict.wins, self.arrays["first_wins"], verdict.sizes)
        found = dict(zip(("gain", "gain_low", "gain_high"), gained, strict=True))
        if verdict.score > self.notes.get("best_score", -1.0):
            self.arrays["best"] = flat
            self.notes |= {"best_score": verdict.score, "best_meta_generation": self.num_done}
            self.notes["best_validation"] = run_record.summary(verdict) | found
            self._write_rule(trained.RULE, flat)
        self.notes["last_score"] = verdict.score
        self.notes["last_gain"] = found
        row = {"score": verdict.score, "best_score": self.notes["best_score"]}
        return row | found | run_record.compared(verdict)

    # --- after each step ---

    def _after_step(self, row: dict[str, Any], seconds: float, total: int) -> None:
        self._write_row(row, seconds)
        self.is_saved = False
        self.save_sometimes(self._save)
        done = self.num_rounds if row["phase"] == "imitation" else self.num_done
        self.progress(TrainingProgress(row["phase"], done, total, seconds, self.notes.get("last_score")))
        self.stop.after(seconds)

    def _write_row(self, row: dict[str, Any], seconds: float) -> None:
        if self.log is not None:
            about = {"step": self.step, "meta_generation": self.num_done}
            times = {"time_s": round(self.time_s, 3), "seconds": round(seconds, 4)}
            self.log.write(about | times | row)

    def _is_stopped(self) -> bool:
        """Whether any process wants to stop; all must agree, or some would wait for the others for ever."""
        if jax.process_count() > 1:
            from jax.experimental import multihost_utils

            if np.any(multihost_utils.process_allgather(np.asarray(self.stop.reason is not None))):
                self.stop.reason = self.stop.reason or "another process"
        return self.stop.reason is not None

    def _notes(self) -> dict[str, Any]:
        session = self.session | {
            "ended": manifest.now(),
            "last_step": self.step,
            "time_s": round(time.perf_counter() - self.begun, 3),
            "compile_s": round(self.compiling.seconds, 3),
        }
        return self.notes | {"time_s": self.time_s, "sessions": [*self.notes["sessions"], session]}

    def _save(self) -> None:
        if self.leads:
            self.store.save(Saved(self.config, self.num_rounds, self.num_done, self.arrays, self._notes()))
        self.is_saved = True

    def _write_rule(self, name: str, flat: np.ndarray) -> None:
        rule = generation.rule_from(jax.numpy.asarray(flat), self.config.architecture)
        trained.save_rule(self.store.folder / name, rule, run_record.card(self.config, self._notes(), self.num_done))

    def _has_rule(self) -> bool:
        """Whether the best rule's file is there and whole: it may have been lost since the state was saved."""
        try:
            found = np.asarray(generation.flat_from(trained.read(self.store.folder / trained.RULE)))
        except Unreadable:
            return False
        return np.array_equal(found, self.arrays["best"])

    def _outcome(self) -> Outcome:
        """The outcome so far: the best rule or, during an imitation, the current one."""
        if "start" in self.arrays:
            last = self.arrays.get("strategy.mean", self.arrays["start"])
        elif state := files.unflatten(_under("imitation", self.arrays)):
            last = np.asarray(generation.flat_from(Learned(fitting.params_of(state), self.config.architecture)))
        else:  # stopped before it began
            last = initial_weights.weights(self.config)
        best = self.arrays.get("best", last)
        rule = generation.rule_from(jax.numpy.asarray(best), self.config.architecture)
        card = run_record.card(self.config, self._notes(), self.num_done)
        if self.leads:
            self._write_rule("last.safetensors", last)
            if not self.config.validation.every and "start" in self.arrays:
                self._write_rule(trained.RULE, last)
            manifest.write(self.store.folder / "card.json", card)
        return Outcome(rule, self.store.folder, self.num_done, self.stop.reason, card)


def _to_host(state) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in state.items()}


def _under(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in arrays.items() if name.startswith(start)}
