"""`lqd bench`."""

import contextlib
import dataclasses
import pathlib
import sys
import time
from collections.abc import Iterable
from typing import Any

from lqd.checks import time_limit
from lqd.cli.console import pieces_bar, table
from lqd.errors import InvalidInput, unknown


@dataclasses.dataclass(frozen=True)
class Bench:
    """Run the experiments behind a figure of the paper, or check the claims about the trained rules.

    Every finished piece is kept in the folder, so an interrupted bench continues from where it stopped. To redo a
    piece, delete its file. The suite `all` ends with every figure and the report.
    """

    suite: str = "claims"
    """Experiments of the paper: pareto, bars-train, bars-ood, grid, landscape, ablation, diversity, robots,
    robots-aggregate, or all of them; ours: claims, generalisation, second."""
    preset: str = "quick"
    """For the paper's experiments: quick (`all` takes under 20 minutes on 2 CPU cores), scaled, longer (two robots, six
    times the evaluations) or paper (the paper's size, on a GPU). For ours: quick or full (on a GPU; claims
    also at a million evaluations)."""
    seeds: int | None = None
    """Instances of each function, instead of the preset's number. If the folder has fewer, the others are added."""
    only: tuple[str, ...] = ()
    """Run only these parts of the suite, such as hopper or train, and write only their pieces. Several processes can
    share a folder, each with its own parts; then the command without --only collects them and writes the report. Of the
    suite second: only these tables (fitness, fitness-40, diversity, novelty, grid, million)."""
    time_limit_s: float | None = None
    """Stop after this many seconds, with exit status 3. The same command continues from there."""
    out: pathlib.Path | None = None
    """Folder for the results; default runs/SUITE."""
    quiet: bool = False
    """Show no progress bar."""

    def main(self) -> None:
        from lqd.bench import claims, generalisation, second, suites
        from lqd.io.lock import locked

        own: dict[str, Any] = {"claims": claims, "generalisation": generalisation, "second": second}
        if self.suite not in (*suites.NAMES, *own):
            raise unknown("suite", self.suite, [*suites.NAMES, *own])
        presets: dict[str, Any] = own[self.suite].PRESETS if self.suite in own else suites.PRESETS
        if self.preset not in presets:
            raise unknown("preset", self.preset, presets)
        if self.seeds is not None and self.suite in own:
            raise InvalidInput(f"--seeds is for the paper's suites; {self.suite!r} has a fixed number of seeds.")
        for name in ("only", "time_limit_s"):
            is_known = self.suite not in own or (self.suite == "second" and name == "only")
            if getattr(self, name) not in ((), None) and not is_known:
                raise InvalidInput(f"--{name.replace('_', '-')} is for the paper's suites, not for {self.suite!r}.")
        out = self.out or pathlib.Path("runs") / self.suite
        size = presets[self.preset]
        planned: Iterable[str] = second.plan(self.preset, self.only).names if self.suite == "second" else size
        if self.suite not in own:
            planned = suites.parts(self.suite, size, self.only)
        is_whole = self.suite not in own and not self.only
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(out, "--out", shared=bool(self.only)))
            for folder in suites.folders(out, self.preset, planned, is_whole):
                stack.enter_context(locked(folder, "--out"))
            if self.suite in own:
                self._own(own[self.suite].run, out)
            else:
                self._suite(out)

    def _own(self, run, out: pathlib.Path) -> None:
        from lqd.bench import generalisation

        with pieces_bar(self.quiet) as progress:
            given = {"only": self.only} if self.suite == "second" else {}
            content = run(self.preset, out, progress, **given)
        if self.suite == "second":
            self._show_second(content)
        elif self.suite == "claims":
            self._show_claims(content)
        else:
            columns = generalisation.COLUMNS
            rows = [
                (row["setting"], row["rule"], *(generalisation.cell(row, name) for name in columns.values()))
                for row in content["rows"]
            ]
            table(("setting", "rule", *columns), rows)
        print(f"Wrote {out / self.suite}.md")

    def _suite(self, out: pathlib.Path) -> None:
        from lqd.bench import suites
        from lqd.bench.results import Folder
        from lqd.bench.side_by_side import OutOfTime
        from lqd.bench.verdicts import counts, verdicts
        from lqd.report import draw, page

        limit = time_limit(self.time_limit_s)
        until = None if limit is None else time.perf_counter() + limit
        if suites.leaves_robots_out(self.suite, suites.PRESETS[self.preset]):
            print(f"Without robots: {suites.NEED_BRAX}", file=sys.stderr)
        try:
            with pieces_bar(self.quiet) as progress:
                if self.only:
                    suites.run_parts(self.suite, self.preset, out, self.only, progress, self.seeds, until)
                else:
                    suites.run(self.suite, self.preset, out, progress, self.seeds, until)
        except OutOfTime as error:
            print(f"lqd: time is up: {error}; the same command continues from there.", file=sys.stderr)
            raise SystemExit(3) from None
        if self.only:
            print(f"Kept the pieces of {', '.join(self.only)} in {out / 'pieces'}; run without --only to collect all.")
            return
        folder = Folder(out)
        found = verdicts(folder)
        rows = [
            (row["claim"], row["paper"], row["ours"], *map(page.number, (row["p"], row["paired_p"])), row["verdict"])
            for row in found
        ]
        table(("claim", "paper", "ours", "p", "paired p", "verdict"), rows)
        if found:
            print(counts(found))
        if said := suites.budgets(folder.manifest):
            print(said)
        figures = draw.make_all(folder)
        draw.save_all(figures, folder)
        print(f"Wrote {page.write(out, figures=figures)}")

    def _show_second(self, content: dict) -> None:
        from lqd.bench import second_tables

        for name, part in content["tables"].items():
            print(part["title"])
            for header, rows in second_tables.shown(name, part):
                table(header, rows)
        for said in content["left_out"]:
            print(said.replace("`", ""))

    def _show_claims(self, content: dict) -> None:
        from lqd.bench import claims

        for part in content["settings"].values():
            rows = [
                (row["claim"], row["verdict"], *claims.cells(finding))
                for row in part["claims"]
                for finding in row["findings"]
            ]
            print(f"{part['setting']['num_evaluations']:,} evaluations, {part['setting']['num_seeds']} seeds")
            table(("claim", "verdict", *claims.COLUMNS), rows)
