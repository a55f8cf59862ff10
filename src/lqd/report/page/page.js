"use strict";
// Numbers for people, tables that sort, and what else is on the page. Reads the data block, loads nothing.

const data = JSON.parse(document.getElementById("data").textContent);

// "-110", "12,300", "0.0046", "2.3 × 10⁻⁸": three digits, more only before the point
function people(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e7 || size < 1e-4) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits} × 10${[...String(Number(power))].map((one) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[one] || "⁻").join("")}`;
  }
  return value.toLocaleString("en", size >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
}

// ---- tables ----

const VERDICTS = { holds: "holds", "does not hold": "fails", inconclusive: "open" };

function fill(table, columns, rows) {
  const head = table.createTHead().insertRow();
  columns.forEach((column, i) => {
    const cell = document.createElement("th"), button = document.createElement("button");
    cell.scope = "col";
    button.type = "button";
    button.textContent = column.title;
    cell.append(button);
    cell.addEventListener("click", () => sort(table, i));
    head.append(cell);
  });
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const column of columns) {
      const cell = line.insertCell(), value = row[column.name], shown = column.shown ? column.shown(row) : value;
      const text = shown === null || shown === undefined ? "" : String(shown);
      const target = column.link && document.getElementById(column.link(row));
      if (target) {
        const link = document.createElement("a");
        link.href = `#${target.id}`;
        link.textContent = text;
        cell.append(link);
      } else cell.textContent = text;
      cell.dataset.title = column.title;
      if (column.number) {
        cell.className = "number";
        if (typeof value === "number") cell.dataset.value = value;
      }
      if (column.name === "verdict") cell.className = VERDICTS[value];
      if (column.name === "claim") cell.className = "claim";
    }
  }
}

function sort(table, index) {
  const heads = table.tHead.rows[0].cells;
  const ascending = heads[index].getAttribute("aria-sort") !== "ascending";
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[index].setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const sign = ascending ? 1 : -1;
  const body = table.tBodies[0];
  const keyed = [...body.rows].map((row) => [row.cells[index].dataset.value, row.cells[index].textContent, row]);
  keyed.sort(([a, text], [b, other]) => {
    if (text === "" || other === "") return (text === "") - (other === "");  // what is missing comes last, either way
    return sign * (a === undefined || b === undefined ? text.localeCompare(other, "en", { numeric: true }) : a - b);
  });
  body.append(...keyed.map(([, , row]) => row));
}

fill(document.getElementById("verdicts"), [
  { name: "cites", title: "figure", link: (row) => `figure-${row.figure}` }, { name: "claim", title: "claim" },
  { name: "paper", title: "the paper says" }, { name: "ours", title: "these runs give" }, { name: "needed", title: "needed to hold" },
  { name: "p", title: "p", number: true, shown: (row) => row.p_shown },
  { name: "paired_p", title: "paired p", number: true, shown: (row) => row.paired_p_shown },
  { name: "effect", title: "effect", number: true, shown: (row) => row.effect_shown }, { name: "verdict", title: "verdict" },
], data.verdicts);

for (const part of document.querySelectorAll("#summary [data-verdict]")) {
  part.style.flexGrow = data.verdicts.filter((row) => row.verdict === part.dataset.verdict).length;
}

const results = document.getElementById("results");
const measured = (name, title) => ({ name, title, number: true, shown: (row) => people(row[name]) });
fill(results, [
  { name: "part", title: "part" }, { name: "function", title: "function" }, { name: "dim", title: "dimension", number: true },
  { name: "rule", title: "rule" }, measured("fitness", "fitness"), measured("novelty", "novelty"),
  measured("novelty_rarefied", "novelty at MAP-Elites's slots"), measured("qd", "QD score"), measured("num_filled", "filled"),
], data.table);

const filter = document.getElementById("filter");
function narrow() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of results.tBodies[0].rows) {
    const cells = [...row.cells].map((cell) => cell.textContent.toLowerCase());
    const keep = words.every((word) => cells.some((text) => text.includes(word)));
    row.hidden = !keep;
    shown += keep;
  }
  document.getElementById("count").textContent = `${shown} of ${results.tBodies[0].rows.length} rows`;
}
filter.addEventListener("input", narrow);
narrow();

// For the tests of this page, and for whoever opens the console.
const explorer = data.landscape ? new Explorer(data.landscape) : null;
window.lqd = { data, explorer, people, state: explorer && explorer.state };
if (!explorer) for (const one of document.querySelectorAll("#landscape, a[href='#landscape']")) one.hidden = true;
