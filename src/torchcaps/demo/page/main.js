// Assembles the page: pad, test images, panels.

import { get, hasToken, report, useToken } from "./api.js";
import { Drawing, isInk, knowsDigits } from "./drawing.js";
import { paint } from "./images.js";
import { Pad } from "./pad.js";
import { attackPanel } from "./panels/attack.js";
import { dimensionsPanel } from "./panels/dimensions.js";
import { drawPanel } from "./panels/draw.js";
import { pairsPanel } from "./panels/pairs.js";
import { resultsPanel } from "./panels/results.js";
import { routingPanel } from "./panels/routing.js";
import { transformPanel } from "./panels/transform.js";
import { readPicture } from "./pictures.js";
import { Samples } from "./samples.js";
import { tabs } from "./tabs.js";
import { themes } from "./theme.js";

const part = (id) => document.getElementById(id);

async function start() {
  const models = await get("/api/models");
  const single = models.find((info) => info.labels_per_image === 1) ?? models[0];
  const double = models.find((info) => info.labels_per_image === 2);
  let open = null;
  let planned = false;

  const digits = models.some(knowsDigits);
  const pad = new Pad(part("pad"), { cursor: part("cursor"), hint: part("pad-hint"), asInk: isInk(single), changed });
  const drawing = new Drawing(pad);
  const panels = [drawPanel, dimensionsPanel, routingPanel, transformPanel, attackPanel, ...(digits ? [pairsPanel] : []), resultsPanel].map(
    (make) => make({ models, drawing, digits }),
  );
  describe(digits, pad, models);
  const samples = new Samples(part("samples"), (image) => pad.put(image, { exact: true }));

  // At most once per animation frame, however fast the pen moves.
  function changed() {
    if (planned) return;
    planned = true;
    requestAnimationFrame(() => {
      planned = false;
      drawing.changed();
      paint(part("seen"), drawing.imageFor(subject()), { ink: isInk(subject()) });
      open.current.changed();
    });
  }

  /** The network whose input is shown below the pad: the one for two digits while its panel is open. */
  const subject = () => (document.body.dataset.panel === "pairs" && double ? double : single);

  /** Show test images of the current network; an unchanged example on the pad is replaced by one of them. */
  async function showSamples() {
    part("more").hidden = !subject().samples;
    const shown = await samples.show(subject()).catch(() => []);
    const example = shown[Math.min(subject() === double ? 1 : 2, shown.length - 1)];
    if (example && (pad.empty || pad.exact)) pad.put(example.image, { exact: true, example: true });
  }

  let last = null;
  open = tabs(document.querySelector(".tabs"), part("panels"), panels, (panel) => {
    document.body.dataset.panel = panel.id;
    if (subject() !== last) void showSamples();
    last = subject();
  });

  part("undo").addEventListener("click", () => pad.undo());
  part("clear").addEventListener("click", () => pad.clear());
  part("more").addEventListener("click", () => samples.more());
  const take = (file) => file && readPicture(file, pad.asInk).then((image) => pad.put(image), report);
  part("picture").addEventListener("change", (event) => {
    take(event.target.files[0]);
    event.target.value = "";
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer.files[0]);
  });
  document.addEventListener("paste", (event) => take([...event.clipboardData.files][0]));
  themes(part("theme"), () => open.current.changed());
  document.body.dataset.ready = "true";
}

/** Adapt texts and tools to the networks: digits are drawn with a black pen, other images are mostly given. */
function describe(digits, pad, models) {
  part("purpose").textContent = digits
    ? "Draw a digit and see what capsule networks make of it."
    : "Choose an image and see what capsule networks make of it.";
  if (!digits) part("pad-hint").textContent = "Drop, paste or choose an image, or draw";
  part("pad").parentElement.classList.toggle("paper", !pad.asInk);
  const colored = !pad.asInk && models.some((info) => info.image_shape[0] === 3);
  part("color").parentElement.hidden = !colored;
  part("color").addEventListener("input", (event) => (pad.color = event.target.value));
  pad.refresh();
}

/** Ask for the token of the service, and reload with it. */
function askForToken() {
  part("token-wrong").hidden = !hasToken();
  part("gate").hidden = false;
  part("token").focus();
  part("gate").addEventListener("submit", (event) => {
    event.preventDefault();
    // Headers and tokens only have these characters.
    useToken(part("token").value.replace(/[^\x21-\x7e]/g, ""));
    location.reload();
  });
}

start().catch((error) => (error.status === 401 ? askForToken() : report(error)));
