// Reading needs none of this: it sorts tables, links to each place, searches, switches a figure's rows, opens what is folded.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// --- sorting: down, then up; what is missing stays at the end either way ---

const key = (cell, words) => {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent.trim();
  if (text === "") return null;
  const number = words ? NaN : parseFloat(text.replaceAll(",", ""));
  return Number.isNaN(number) ? text : number;
};

const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

function sort(table, column, header) {
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  const words = header.classList.contains("words");
  const rows = [...table.tBodies[0].rows].map(row => [key(row.cells[column], words), row]);
  rows.sort(([a], [b]) => (a === null) - (b === null) || direction * compare(a, b));
  all("th", table.tHead).forEach(th => th.removeAttribute("aria-sort"));
  header.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of all("table")) {
  // a row's name sorts by its place, which is the paper's order
  [...table.tBodies[0].rows].forEach((row, place) => (row.cells[0].dataset.value = place));
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, column, header));
    header.append(button);
  });
}

// --- a link to each table and figure, after its caption ---

for (const item of all("div.item, figure.item")) {
  const caption = item.querySelector("caption span, figcaption");
  const link = { className: "here", href: `#${item.id}`, textContent: "#", ariaLabel: "Link to this place" };
  caption.insertBefore(Object.assign(document.createElement("a"), link), caption.querySelector(".files"));
}

// --- searching: an item stays if it has every word ---

const search = document.getElementById("search");
const items = all(".item").map(item => [item, ""]);

function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const pair of items) {
    pair[1] ||= `${pair[0].textContent} ${pair[0].id}`.toLowerCase();
    const fits = words.every(word => pair[1].includes(word));
    pair[0].classList.toggle("unfound", !fits);
    found += fits;
    const folded = fits && words.length > 0 && pair[0].parentElement.closest("details");
    if (folded) folded.open = true;
  }
  for (const part of all("main [data-dataset]:not(.item)")) part.classList.toggle("unfound", !part.querySelector(".item:not(.unfound)"));
  const told = found ? `${found} of ${items.length} found: Enter shows the first` : "nothing found";
  document.getElementById("found").textContent = words.length ? told : "";
}

search.hidden = false;
search.addEventListener("input", find);
search.addEventListener("change", () => search.value.trim() && document.querySelector(".item:not(.unfound)")?.scrollIntoView());

// --- a click on a figure's legend switches that row in this figure ---

for (const entry of all("[data-key]")) {
  entry.addEventListener("click", () => {
    const name = CSS.escape(entry.dataset.key);
    all(`[data-row="${name}"], [data-key="${name}"]`, entry.closest("svg")).forEach(mark => mark.classList.toggle("off"));
  });
}

// --- what is folded opens for a link into it and for print ---

function unfold() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
}

addEventListener("hashchange", unfold);
unfold();
addEventListener("beforeprint", () => all("details").forEach(d => (d.open = true)));
