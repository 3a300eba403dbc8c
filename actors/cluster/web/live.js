"use strict";
// Follows one run. All words come as JSON and are written by textContent alone, so none of them becomes markup.

const base = location.pathname.replace(/\/$/, "");
const at = (id) => document.getElementById(id);

function make(name, words, attributes) {
  const made = document.createElement(name);
  if (words !== undefined) made.textContent = words;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

const short = (value) => Number.isInteger(value) ? String(value) : value.toPrecision(3);
let over = false;  // the run goes on no longer
const idle = () => over ? "" : "waits for work";
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);

function numbers(run) {
  const seconds = Math.max(0, Date.now() / 1000 - run.started_s);
  const shown = [
    ["phase", run.phase || "not begun"], ["weights", run.trained || "none yet"],
    ["steps", Object.entries(run.steps).map(([phase, n]) => `${phase} ${n}`).join(", ") || "0"],
    ["episodes", sum(run.episodes)], ["faults", sum(run.faults)],
    ["in quarantine", Object.keys(run.quarantine).length],
    ["groups open, ready, leased", ["open", "ready", "leased"].map((one) => run.groups[one] || 0).join(", ")],
  ];
  if (!over) {
    shown.push(["episodes a minute", run.episodes_per_min ?? "not known yet"],
      ["since its start", `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`]);
  }
  at("numbers").replaceChildren(...shown.map(([what, value]) => {
    const box = make("div");
    box.append(make("dt", what), make("dd", String(value)));
    return box;
  }));
}

function bars(title, counts, unit) {
  const all = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 10);
  if (!all.length) return null;
  const figure = make("figure"), most = all[0][1] || 1;
  figure.append(make("figcaption", title));
  for (const [name, count] of all) {
    const row = make("div", undefined, {class: "bar"});
    const meter = make("meter", undefined, {min: 0, max: most, value: count, "aria-label": `${title}: ${name}`});
    row.append(make("span", name), meter, make("span", short(count) + unit));
    figure.append(row);
  }
  return figure;
}

function table(head, rows) {
  const box = make("div", undefined, {class: "wide", tabindex: "0"}), made = make("table"), first = make("tr");
  for (const word of head) first.append(make("th", word, {scope: "col"}));
  made.append(first);
  for (const row of rows) {
    const line = make("tr");
    for (const cell of row) line.append(make("td", String(cell)));
    made.append(line);
  }
  box.append(made);
  return box;
}

function showRun(run) {
  document.title = `${run.run} ${run.state}`;
  at("name").textContent = run.run;
  at("state").textContent = run.state;
  at("state").className = run.state === "ok" || run.state === "running" ? "good" : "bad";
  at("reason").textContent = run.reason;
  over = run.state !== "running";
  for (const tile of seats.values()) if (tile.idle) tile.said.textContent = idle();
  numbers(run);
  at("bars").replaceChildren(...[
    bars("seat seconds of the last ten minutes", run.stages_s, " s"), bars("how groups ended", run.endings, ""),
    bars("optimizer steps between playing and training", run.staleness, ""), bars("faults by cause", run.faults, ""),
    bars("in quarantine", Object.fromEntries(Object.entries(run.quarantine).map(([what, cause]) => [`${what}: ${cause}`, 1])), ""),
  ].filter(Boolean));
  const rounds = run.rounds.map((one) => [one.name, one.version, `${one.played} of ${one.planned}`,
    one.played ? (one.successes / one.played).toFixed(3) : "", one.closed ? "done" : "being played"]);
  at("rounds").replaceChildren(
    rounds.length ? table(["Round", "Weights", "Played", "Success", ""], rounds) : make("p", "No evaluation round yet."),
    run.samplers.length ? table(["Sampler", "Serves weights", "Tokens a second"],
      run.samplers.map((one) => [one.name, one.version, one.tokens_s ?? "not known"])) : make("p"),
    Object.values(run.machines).some(Boolean) ?
      table(["Process", "Machine"], Object.entries(run.machines).sort().map(([name, machine]) => [name, machine || "this one"])) : make("p"));
}

function curve(title, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.length < 2) return null;
  const low = Math.min(...known), high = Math.max(...known), range = high - low || 1;
  const space = "http://www.w3.org/2000/svg", picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 100 40");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${title}: now ${short(known[known.length - 1])}, between ${short(low)} and ${short(high)}`);
  const line = document.createElementNS(space, "polyline");
  line.setAttribute("points", values.map((value, n) => value === null || value === undefined ? "" :
    `${100 * n / (values.length - 1)},${38 - 36 * (value - low) / range}`).filter(Boolean).join(" "));
  picture.append(line);
  const figure = make("figure");
  figure.append(picture, make("figcaption", `${title} ${short(known[known.length - 1])} (${short(low)} to ${short(high)})`));
  return figure;
}

function showCurves(steps) {
  const of = (name) => steps.map((step) => step.figures[name]);
  const made = [curve("success of training episodes", steps.map((step) => step.success)), curve("entropy, nats per token", of("entropy")),
    curve("KL, nats per token", of("kl")), curve("loss", of("loss"))].filter(Boolean);
  at("curves").replaceChildren(...(made.length ? made : [make("p", "Curves begin with the second optimizer step.")]));
}

// Only seats in sight ask for pictures, and at most so many a second.
const PICTURES_A_SECOND = 8;
const seats = new Map();
const waiting = new Set();
const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.inSight = entry.isIntersecting;
    if (entry.isIntersecting) waiting.add(entry.target);
  }
});
setInterval(() => {
  let left = PICTURES_A_SECOND;
  for (const tile of waiting) {
    if (!left) break;
    waiting.delete(tile);
    if (!tile.inSight || !tile.token || tile.token === tile.shown) continue;
    tile.shown = tile.token;
    tile.picture.src = `${base}/pictures/${tile.token}.jpg`;
    left -= 1;
  }
}, 1000);

function tileOf(name) {
  if (seats.has(name)) return seats.get(name);
  const tile = make("a", undefined, {class: "seat"});
  tile.picture = make("img", undefined, {alt: "", loading: "lazy"});
  tile.picture.addEventListener("error", () => { tile.picture.removeAttribute("src"); });
  tile.said = make("span");
  tile.append(tile.picture, make("b", name), tile.said);
  seats.set(name, tile);
  at("wall").append(tile);
  sight.observe(tile);
  return tile;
}

function showSeats(changed) {
  for (const [name, trace, task, token, success, quarantine] of changed) {
    const tile = tileOf(name);
    tile.className = `seat${trace ? " busy" : ""}${quarantine ? " rests" : ""}`;
    tile.busy = Boolean(trace);
    tile.idle = !quarantine && !trace;
    tile.said.textContent = quarantine ? `in quarantine: ${quarantine}` : trace ? `${trace} ${task}` : idle();
    if (token) {
      tile.token = token;
      tile.href = `${base}/episodes/${token}`;
      tile.picture.alt = `${name}, its newest episode: ${success ? "success" : "failure"}`;
      if (tile.inSight) waiting.add(tile);
    }
  }
  let busy = 0;
  for (const tile of seats.values()) busy += tile.busy ? 1 : 0;
  at("seats-said").textContent = seats.size ? `${busy} of ${seats.size} play. A seat opens its newest finished episode.` : "No seat has played yet.";
}

function trouble(words) {
  at("trouble").textContent = words;
  at("trouble").hidden = !words;
}

at("to-episodes").href = `${base}/episodes`;
at("to-actors").href = `${base}/actors`;
const live = new EventSource(`${base}/live`);
for (const [name, show] of [["run", showRun], ["curve", showCurves], ["seats", showSeats], ["trouble", trouble]]) {
  live.addEventListener(name, (event) => show(JSON.parse(event.data)));
}
live.addEventListener("open", () => trouble(""));
live.addEventListener("error", () => trouble("The page's server does not answer. It is asked again every second."));

const LOG_LINES = 500;
let following = null;
at("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  if (following) following.close();
  at("logs").replaceChildren();
  const asked = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value));
  following = new EventSource(`${base}/logs?${asked}`);
  at("logs-said").textContent = "following";
  following.addEventListener("lines", (message) => {
    const {lines, left_out: leftOut} = JSON.parse(message.data), box = at("logs");
    const below = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (leftOut) box.append(make("div", `(${leftOut} lines left out)`));
    for (const [level, words] of lines) box.append(make("div", words, {class: level}));
    while (box.childElementCount > LOG_LINES) box.firstElementChild.remove();
    if (below) box.scrollTop = box.scrollHeight;
  });
  following.addEventListener("error", () => { at("logs-said").textContent = "the logs do not answer; asked again"; });
});
