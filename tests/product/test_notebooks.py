"""Every notebook prints what it shows, on the public API alone, and keeps the form: a question, a take-away, answers.

`pytest -m slow --refresh` rewrites those that print something else.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import simulator

FIGURE = "<Figure "
MOST_CELLS, MOST_BYTES = 14, 150_000
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def texts(notebook: nbformat.NotebookNode) -> list[str]:
    """Return what the cells print, pictures left out: their bytes depend on the machine's fonts."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    found = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return [text for text in found if not text.startswith(FIGURE)]


@pytest.fixture(scope="module")
def kernel() -> Iterator[NotebookClient]:
    """One kernel for all notebooks: to start one and to import takes longer than most notebooks."""
    where = {"metadata": {"path": str(NOTEBOOKS[0].parent)}}
    empty = nbformat.v4.new_notebook()
    client = NotebookClient(empty, timeout=300, resources=where, record_timing=False, coalesce_streams=True)
    with client.setup_kernel():
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the kernel's own libraries
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_prints_what_it_shows(path, kernel, request):
    notebook = nbformat.read(path, as_version=4)
    shown = texts(notebook)
    kernel.nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%reset -f")])  # no name of another is left
    kernel.execute(cleanup_kc=False)
    kernel.nb = notebook
    kernel.execute(cleanup_kc=False)
    if request.config.getoption("--refresh"):
        if texts(notebook) != shown:
            nbformat.write(notebook, path)
        return
    assert texts(notebook) == shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_form(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    assert cells[0].source.startswith("# ")
    assert "?" in cells[0].source.splitlines()[0]
    assert "**Take-away.**" in text
    assert text.count("<details>") == 3
    assert len(cells) <= MOST_CELLS
    assert path.stat().st_size <= MOST_BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_uses_the_public_api_alone(path):
    code = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    assert re.findall(r"(?:from|import) simulator\.", code) == []
    names = re.search(r"^from simulator import (\([^)]*\)|.*)$", code, re.MULTILINE)[1]
    assert set(re.findall(r"\w+", names)) <= set(simulator.__all__)
