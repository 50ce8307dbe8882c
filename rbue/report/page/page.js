// Reading needs none of this: it sorts tables and opens what is folded for print.
"use strict";

const key = cell => {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent.trim();
  return text === "–" || text === "" ? null : text;
};

const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

// Down, then up; what is missing stays at the end either way.
function sort(table, column, header) {
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const rows = [...table.tBodies[0].rows].map(row => [key(row.cells[column]), row]);
  rows.sort(([a], [b]) => (a === null) - (b === null) || direction * compare(a, b));
  table.tHead.querySelectorAll("th").forEach(th => th.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, column, header));
    header.append(button);
  });
}

addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(d => (d.open = true)));
