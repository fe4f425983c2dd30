// A card with a network's prediction and a bar for each class.

import { make } from "./dom.js";

const TITLES = {
  capsnet: "CapsNet",
  "matrix-capsnet": "Matrix capsules",
  "ar-capsnet": "AR CapsNet",
  "convnet-avg": "ConvNet-Avg",
};

/** The title of a network; runs of the same network are named by their directory. */
export function titleOf(info, all) {
  const same = all.filter((other) => other.model === info.model && other.labels_per_image === info.labels_per_image);
  if (same.length > 1) return info.name;
  return (TITLES[info.model] ?? info.model) + (info.labels_per_image > 1 ? " for two digits" : "");
}

const count = (number) => new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(number);

/** Size and accuracy of a network. */
export function aboutOf(info) {
  const accuracy = info.test_accuracy === null ? "" : `, ${(100 * info.test_accuracy).toFixed(1)} % accuracy on ${info.data}`;
  return `${count(info.parameters)} parameters${accuracy}`;
}

/** A bar for each class, with a mark at its previous value. */
export function bars(names) {
  const rows = names.map((name) => {
    const fill = make("i", { class: "fill" });
    const mark = make("i", { class: "mark", hidden: true });
    return { fill, mark, element: make("li", {}, make("span", { class: "bar" }, fill, mark), make("b", {}, name)) };
  });
  // Digits fit below vertical bars; longer names need horizontal bars.
  const kind = names.some((name) => name.length > 2) ? "bars lying" : "bars";
  const element = make("ol", { class: kind, "aria-hidden": "true" }, ...rows.map((row) => row.element));
  function show(scores, winners, before = null) {
    rows.forEach((row, label) => {
      row.fill.style.setProperty("--part", Math.min(1, scores?.[label] ?? 0));
      row.element.classList.toggle("winner", Boolean(winners?.includes(label)));
      row.element.classList.toggle("second", winners?.[1] === label); // in the color of its reconstruction
      row.mark.hidden = before === null;
      if (before) row.mark.style.setProperty("--part", Math.min(1, before[label]));
    });
  }
  return { element, show };
}

/** The card of a network, with `extra` elements below its bars. */
export function answerCard(info, all, ...extra) {
  const digit = make("output", { class: "digit" }, "–");
  const score = make("span", { class: "score" });
  const chart = bars(info.class_names);
  const title = titleOf(info, all);
  const element = make(
    "article",
    { class: "card answer", "aria-label": title },
    make("header", {}, make("h3", {}, title), make("p", { class: "about" }, aboutOf(info))),
    make("div", { class: "verdict" }, make("div", { class: "said" }, digit, score), chart.element),
    ...extra,
  );
  /** Show scores and the predicted class, with marks at the scores `before`. */
  function show(scores, before = null) {
    const label = scores ? scores.indexOf(Math.max(...scores)) : null;
    digit.textContent = scores ? info.class_names[label] : "–";
    digit.classList.toggle("long", digit.textContent.length > 2);
    score.textContent = scores ? scores[label].toFixed(2) : "";
    chart.show(scores, scores ? [label] : [], before);
    return scores ? `${title}: ${info.class_names[label]}, ${scores[label].toFixed(2)}` : "";
  }
  return { element, show };
}
