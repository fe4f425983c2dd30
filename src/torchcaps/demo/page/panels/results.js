// Results: reproduced claims and tables of the papers, if there is a folder of results.

import { get, latest } from "../api.js";
import { make } from "../dom.js";

export function resultsPanel() {
  const place = make("div", {}, make("p", { class: "about" }, "Reading the folder …"));
  const element = make("div", { class: "panel" },
    make("p", { class: "lead" }, "Our values beside those of the papers, and verdicts on their claims."), place);

  const update = latest(async () => {
    const papers = await get("/api/results");
    if (!papers.length) {
      place.replaceChildren(make("p", {}, "There are no results in the folder yet. ", make("code", {}, "torchcaps reproduce"),
        " makes them; ", make("code", {}, "torchcaps demo --results FOLDER"), " shows those of another folder."));
      return;
    }
    place.replaceChildren(...papers.map(paper));
  });
  return { id: "results", title: "Results", element, open: update, changed() {} };
}

function paper({ paper, title, claims, tables }) {
  return make("section", { class: "card results" }, make("h3", {}, title), make("p", { class: "about" }, paper),
    claims.length ? make("ul", { class: "claims" }, ...claims.map(claim)) : null, ...tables.map(table));
}

function claim({ statement, source, verdict, profile, tests }) {
  const kind = { holds: "yes", "does not hold": "no" }[verdict] ?? "open";
  return make("li", {}, make("span", { class: `verdict-word ${kind}` }, verdict),
    make("div", {}, statement, make("details", {}, make("summary", {}, `${source}, profile ${profile}`), ...tests.map((test) => make("p", { class: "about" }, test)))));
}

function table({ title, profile, columns, rows, caption }) {
  const head = ["", ...columns].map((text) => make(text ? "th" : "td", text ? { scope: "col" } : {}, text));
  const body = rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.name), ...row.cells.map(cell)));
  return make("details", { open: true }, make("summary", {}, `${title} (profile ${profile})`),
    make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
      make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body))),
    make("p", { class: "about" }, caption));
}

function cell(entry) {
  if (!entry) return make("td", {});
  return make("td", {}, make("b", {}, entry.ours), entry.paper ? make("span", { class: "about" }, ` paper ${entry.paper}`) : null);
}
