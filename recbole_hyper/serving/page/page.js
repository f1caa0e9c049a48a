"use strict";
// What the model knows: search, neighbours, a history with its recommendations, and a map. No library, no network but
// the service itself.

const at = (id) => document.getElementById(id);
const COLOURS = ["#2a6fb0", "#c8611b", "#3a8f4d", "#8a55a5", "#b23a48", "#7a6a2b", "#2f8f95", "#9a9fa6"];
let history = [];   // ids, oldest first
let points = null;  // of the map
let marked = [];    // ids of the last answer

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const content = await answer.json();
  at("error").textContent = answer.ok ? "" : JSON.stringify(content.detail);
  if (!answer.ok) throw new Error(path);
  return content;
}

function element(tag, text, more = {}) {
  const made = Object.assign(document.createElement(tag), more);
  if (text !== null) made.textContent = text;  // ids are text, never markup
  return made;
}

function label(item) {
  return item.title ? `${item.title} (${item.item})` : item.item;
}

function line(item, note, ...buttons) {
  const made = element("li", null);
  made.append(element("span", label(item), { className: "name", title: label(item) }), element("small", note), ...buttons);
  return made;
}

async function search() {
  const found = await ask(`search?text=${encodeURIComponent(at("search").value)}`);
  at("results").replaceChildren(...found.map((item) => line(item, `${item.interactions} times`,
    element("button", "near", { onclick: () => near(item.item) }),
    element("button", "+", { title: "add to the history", onclick: () => add(item.item) }))));
}

async function near(item) {
  const found = await ask(`near?item=${encodeURIComponent(item)}`);
  at("near-of").textContent = `to ${item}`;
  at("near").replaceChildren(...found.map((one) => line(one, one.score.toFixed(3),
    element("button", "+", { title: "add to the history", onclick: () => add(one.item) }))));
  marked = [item, ...found.map((one) => one.item)];
  draw();
}

function add(item) {
  history.push(item);
  recommend();
}

async function recommend(user) {
  const body = user ? { user, k: 10 } : { history, k: 10 };
  const found = await ask("explain", body);
  history = found.history.map((item) => item.item);
  at("history").replaceChildren(...found.history.map((item, place) => line(item, `${place + 1}`,
    element("button", "x", { title: "take out", onclick: () => { history.splice(place, 1); recommend(); } }))));
  const parts = found.contributions;
  const shown = parts.length ? found.history.slice(-8) : [];  // the newest ones fit beside a table
  const first = found.history.length - shown.length;
  const largest = Math.max(1e-9, ...parts.flat().map(Math.abs));
  const head = element("tr", null);
  head.append(element("th", "item"), element("th", "score"), ...shown.map((item) => element("th", item.item)));
  const rows = found.items.map((item, column) => {
    const row = element("tr", null);
    row.append(element("td", label(item), { title: label(item) }), element("td", found.scores[column].toFixed(3)));
    shown.forEach((_, place) => {
      const value = parts[first + place][column];
      const cell = element("td", value.toFixed(2));
      const strength = Math.round(60 * Math.abs(value) / largest);
      cell.style.background = `color-mix(in srgb, ${value < 0 ? "#c8611b" : "#2a6fb0"} ${strength}%, white)`;
      row.append(cell);
    });
    return row;
  });
  at("recommended").replaceChildren(head, ...rows);
  at("hint").textContent = found.popular
    ? "The model knows nothing of this history: these are the most popular items."
    : parts.length
      ? "A cell shows how much the score of the recommended item falls when the item of the history is left out."
      : "With a second item, cells show how much a score falls when an item of the history is left out.";
  marked = found.items.map((item) => item.item);
  draw();
}

function sized(canvas) {
  const scale = window.devicePixelRatio || 1, width = canvas.clientWidth, height = Number(canvas.dataset.height);
  canvas.style.height = `${height}px`;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return [pen, width, height];
}

function colours() {
  if (!points.values) return [points.items.map(() => COLOURS[0]), []];
  const numbers = points.values.every((value) => value === null || typeof value === "number");
  const distinct = [...new Set(points.values)];
  if (numbers && distinct.length > COLOURS.length) {
    const known = points.values.filter((value) => value !== null).sort((a, b) => a - b);
    const share = (value) => value === null ? 0 : known.indexOf(value) / Math.max(1, known.length - 1);
    const shade = (part) => `hsl(${230 - 200 * part} 65% 45%)`;
    return [points.values.map((value) => shade(share(value))), [[known[0], shade(0)], [known.at(-1), shade(1)]]];
  }
  const counts = new Map();
  points.values.forEach((value) => counts.set(value, (counts.get(value) ?? 0) + 1));
  const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, COLOURS.length - 1).map(([value]) => value);
  const shade = (value) => COLOURS[common.includes(value) ? common.indexOf(value) : COLOURS.length - 1];
  const legend = common.map((value) => [value ?? "none", shade(value)]);
  return [points.values.map(shade), counts.size > common.length ? [...legend, ["others", COLOURS.at(-1)]] : legend];
}

function draw() {
  if (!points || !points.items) return;
  const [pen, width, height] = sized(at("map"));
  const radius = Math.min(width, height) / 2 - 8;
  const place = (x, y) => [width / 2 + radius * x, height / 2 - radius * y];
  if (points.disk) {
    pen.strokeStyle = "#b9c1ca";
    pen.beginPath();
    pen.arc(width / 2, height / 2, radius, 0, 7);
    pen.stroke();
  }
  const [shades, legend] = colours();
  points.drawn = points.items.map((_, number) => place(points.x[number], points.y[number]));
  points.drawn.forEach(([x, y], number) => {
    pen.fillStyle = shades[number];
    pen.globalAlpha = 0.55;
    pen.beginPath();
    pen.arc(x, y, points.items.length < 500 ? 4 : 1.8, 0, 7);
    pen.fill();
  });
  pen.globalAlpha = 1;
  const known = new Map(points.items.map((item, number) => [item, number]));
  marked.filter((item) => known.has(item)).forEach((item) => {
    const [x, y] = points.drawn[known.get(item)];
    pen.strokeStyle = "#111";
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 7, 0, 7);
    pen.stroke();
  });
  at("legend").replaceChildren(...legend.map(([text, colour]) => {
    const made = element("span", null);
    made.append(element("i", "", { style: `background:${colour}` }), document.createTextNode(text));
    return made;
  }));
  at("map-text").textContent = points.disk
    ? `The Poincare disk of curvature ${(-points.curvature).toPrecision(3)}: the distance from the centre is true, directions are those of two principal components (${Math.round(100 * points.share)} % of the variance). Circles mark the last answer.`
    : `Two principal components: ${Math.round(100 * points.share)} % of the variance. Circles mark the last answer.`;
  norms(shades);
}

function norms(shades) {
  const [pen, width, height] = sized(at("norms"));
  const most = Math.max(...points.norm), largest = Math.log1p(Math.max(...points.count));
  pen.strokeStyle = "#b9c1ca";
  pen.strokeRect(34.5, 6.5, width - 42, height - 36);
  pen.fillStyle = "#5d6875";
  pen.font = "12px system-ui, sans-serif";
  pen.fillText("training interactions (log)", width / 2 - 70, height - 8);
  pen.save();
  pen.translate(14, height / 2 + 60);
  pen.rotate(-Math.PI / 2);
  pen.fillText("norm of the vector", 0, 0);
  pen.restore();
  points.norm.forEach((norm, number) => {
    pen.fillStyle = shades[number];
    pen.globalAlpha = 0.5;
    const x = 36 + (width - 46) * Math.log1p(points.count[number]) / (largest || 1);
    pen.beginPath();
    pen.arc(x, 10 + (height - 44) * (1 - norm / (most || 1)), points.items.length < 500 ? 3 : 1.5, 0, 7);
    pen.fill();
  });
  pen.globalAlpha = 1;
  at("norms-text").textContent = `Norms from 0 to ${most.toFixed(2)}; ${points.items.length} items.`;
}

async function readMap() {
  points = await ask(`map?column=${encodeURIComponent(at("colour").value)}`);
  if (!at("colour").options.length) {
    at("colour").append(element("option", "one colour", { value: "" }));
    points.columns.forEach((name) => at("colour").append(element("option", name, { value: name })));
  }
  if (!points.items) at("map-text").textContent = "This model has no item vectors.";
  draw();
}

at("map").addEventListener("mousemove", (event) => {
  if (!points || !points.drawn) return;
  const near = points.drawn.map(([x, y]) => (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2);
  const best = near.indexOf(Math.min(...near));
  at("point").textContent = near[best] < 150 ? `${points.items[best]}: ${points.count[best]} times` : "";
});
at("search").addEventListener("input", search);
at("colour").addEventListener("change", readMap);
at("clear").addEventListener("click", () => { history = []; recommend(); });
at("user-form").addEventListener("submit", (event) => { event.preventDefault(); recommend(at("user").value); });
window.addEventListener("resize", draw);

(async () => {
  const about = await ask("health");
  at("about").textContent = `${about.model} on ${about.dataset}: ${about.n_items.toLocaleString("en")} items, ` +
    `${about.n_users.toLocaleString("en")} users` + (about.curvature ? `, curvature ${(-about.curvature).toPrecision(3)}` : "");
  await Promise.all([search(), readMap(), recommend()]);
})();
