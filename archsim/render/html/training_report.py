"""A comparison of training runs as one HTML file: the verdict, charts of memory and of the step, and the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from archsim.base.displayed import Displayed
from archsim.base.json_types import JsonObject
from archsim.comparison.training import TrainingComparison
from archsim.render.figures.plotlyjs import Source, check_source, write_page
from archsim.render.html.page import document
from archsim.render.pages.training_runs import charts, compare_page
from archsim.render.pages.training_runs import verdict as verdict_of


@dataclass(frozen=True, slots=True)
class TrainingReport(Displayed):
    """The page with what it shows. source: where plotly.js comes from."""

    __repr__ = Displayed.__repr__

    comparison: TrainingComparison
    html: str
    source: Source

    @property
    def verdict(self) -> str:
        """The answer in a sentence."""
        return verdict_of(self.comparison)

    def to_dict(self) -> JsonObject:
        """The `archsim.compare-training/1` object."""
        return self.comparison.to_dict()

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the page, and with `directory` plotly.js beside it. Raises OutputRefused for a file that exists."""
        write_page(Path(path), self.html, self.source, force=force)


def training_report(comparison: TrainingComparison, plotlyjs: str = "inline") -> TrainingReport:
    """The page of a comparison. Raises UsageError for a source of plotly.js that there is not."""
    source = check_source(plotlyjs)
    return TrainingReport(comparison, document(compare_page(comparison), charts(comparison.rows), source), source)
