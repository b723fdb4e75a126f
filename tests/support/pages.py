"""Pages that show what commands print, and how they show it: the project's golden outputs."""

import re

from tests.support.paths import ROOT

README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"
PAGES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
BLOCK = re.compile(r"```console\n\$ ([^\n]*)\n(.*?)```", re.DOTALL)
TABLE = re.compile(r"(\| GPU[^\n]*\n\|[-|]+\n)((?:\|[^\n]*\n)+)")
