// Results: what was reproduced of the papers, where a folder of results is at hand.

import { get, latest } from "../api.js";
import { make } from "../dom.js";

const number = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toString());

export function resultsPanel() {
  const place = make("div", {});
  const element = make("div", { class: "panel" },
    make("p", { class: "lead" }, "What was measured here beside what the papers printed: each cell's mean over its seeds."), place);

  const update = latest(async () => {
    const papers = await get("/api/results");
    if (!papers.length) {
      place.replaceChildren(make("p", {}, "There are no results in the folder yet. ", make("code", {}, "torchcaps reproduce"),
        " makes them; ", make("code", {}, "torchcaps demo --results FOLDER"), " shows those of another folder."));
      return;
    }
    place.replaceChildren(...papers.map(table));
  });
  return { id: "results", title: "Results", element, open: update, changed() {} };
}

function table({ paper, rows }) {
  const head = ["Table", "Cell", "Profile", "Paper", "Here", "Seeds"].map((text) => make("th", { scope: "col" }, text));
  const body = rows.map((row) =>
    make("tr", {}, make("td", {}, row.table), make("th", { scope: "row" }, row.cell), make("td", {}, row.profile),
      make("td", { class: "number" }, number(row.published)),
      make("td", { class: "number" }, `${number(row.value)} ${row.unit}`, row.warnings.length ? make("abbr", { title: row.warnings.join(" ") }, " ⚠") : null),
      make("td", { class: "number" }, String(row.seeds))));
  return make("section", { class: "card results" }, make("h3", {}, paper),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Results of ${paper}` },
      make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body))));
}
