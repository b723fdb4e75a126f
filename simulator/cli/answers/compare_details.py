"""All figures of some answers, and what hosted APIs ask for their models: computed once for screen and page."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from simulator.cli.answers.api_columns import Hosted, hosted
from simulator.cli.answers.compare_screen import Compared
from simulator.cli.answers.cost_screen import details
from simulator.cli.options.offer_options import PriceAndApiOptions
from simulator.cli.output import Row, View
from simulator.questions.cost_question import answer_rows


@dataclass(frozen=True)
class CostDetails:
    """What `infercast cost` says of some answers, the cheapest first. `level`: share of measurements in intervals."""

    compared: Sequence[Compared]
    priced: PriceAndApiOptions
    level: float

    @cached_property
    def rows(self) -> list[Row]:
        """Every figure of each answer."""
        return answer_rows([each.answer for each in self.compared], self.level, self.priced)

    @cached_property
    def hosted(self) -> Hosted:
        """What hosted APIs of the same models cost."""
        return hosted([each.answer for each in self.compared], self.priced.terms())

    @property
    def views(self) -> list[View]:
        """The tables of all figures; the last says why."""
        title = self.compared[0].answer.scenario.workload.describe()
        return details(self.rows, self.priced, title, self.level)
