// Tables sort by their headings: by click, or by Enter and Space on the button that a heading becomes.
for (const table of document.querySelectorAll("table:not(.fixed)")) {
  const body = table.tBodies[0];
  if (!body || body.rows.length < 2) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const falling = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => {
        const cell = row.cells[column];
        return { row, order: cell.dataset.order === undefined ? null : Number(cell.dataset.order), text: cell.textContent };
      });
      const numbers = keyed.some((each) => each.order !== null);
      keyed.sort((a, b) => {
        if (!numbers) return (falling ? -1 : 1) * a.text.localeCompare(b.text, "en", { numeric: true });
        if (a.order === null || b.order === null) return (a.order === null) - (b.order === null);
        return (falling ? -1 : 1) * (a.order - b.order);
      });
      body.append(...keyed.map((each) => each.row));
    });
  });
}
