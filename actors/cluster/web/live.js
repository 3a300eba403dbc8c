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

// Three digits and no exponent: 1,990 and 0.0000125.
const short = (value) => value.toLocaleString("en", {maximumSignificantDigits: Math.abs(value) >= 1000 ? 21 : 3, maximumFractionDigits: 20});
const share = (value) => value.toFixed(3);

function duration(seconds) {
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  if (whole < 120) return `${whole} s`;
  return minutes < 120 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

let over = false;  // the run goes on no longer
const PHASES = {demo: "demonstrations", bc: "cloning", rl: "RL"};
const plain = (phase) => PHASES[phase] ?? phase;
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
const decoding = (round) => round.temperature ? `T=${short(round.temperature)}` : "greedy";

function numbers(run) {
  const unit = ["demo", "evaluation"].includes(run.phase) ? "" : "step ";
  const done = run.whole ? `${run.done} of ${run.whole}` : String(run.done);
  const shown = [["phase", run.phase === "done" ? "done" : run.phase ? `${plain(run.phase)}, ${unit}${done}` : "not begun"]];
  if (!over) {
    shown.push(["left in this phase", run.left_s === null ? "not known" : `about ${duration(run.left_s)}`],
      ["since its start", duration(Math.max(0, Date.now() / 1000 - run.started_s))],
      ["episodes a minute", short(run.episodes_per_min ?? 0)]);
  }
  shown.push(["episodes", short(sum(run.episodes))], ["broken by faults", short(sum(run.faults))],
    ["optimizer steps", Object.entries(run.steps).map(([phase, n]) => `${plain(phase)} ${n}`).join(", ") || "0"]);
  if (!over) {
    const groups = ["open", "ready", "leased"].map((one) => run.groups[one] || 0);
    shown.push(["groups", `${groups[0]} in play, ${groups[1]} ready, ${groups[2]} in training`],
      ["in quarantine", String(Object.keys(run.quarantine).length)]);
  }
  at("numbers").replaceChildren(...shown.map(([what, value]) => {
    const box = make("div");
    box.append(make("dt", what), make("dd", value));
    return box;
  }));
}

function bars(title, counts, told) {
  const all = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 10);
  if (!all.length) return null;
  const figure = make("figure"), most = all[0][1] || 1;
  figure.append(make("figcaption", title));
  for (const [name, count] of all) {
    const row = make("div", undefined, {class: "bar"});
    const meter = make("meter", undefined, {min: 0, max: most, value: count, "aria-label": `${title}: ${name}`});
    row.append(make("span", name), meter, make("span", told(count)));
    figure.append(row);
  }
  return figure;
}

function table(head, rows) {
  const box = make("div", undefined, {class: head.length > 3 ? "wide many" : "wide", tabindex: "0"});
  const made = make("table"), names = make("thead"), first = make("tr");
  for (const word of head) first.append(make("th", word, {scope: "col"}));
  names.append(first);
  made.append(names);
  for (const row of rows) {
    const line = make("tr");
    row.forEach((cell, at) => line.append(make("td", String(cell), {"data-head": head[at]})));
    made.append(line);
  }
  box.append(made);
  return box;
}

function showHeldOut(rounds) {
  const played = rounds.filter((one) => one.played), last = played.filter((one) => one.closed).pop() || played[played.length - 1];
  const broken = over ? "broken off" : "being played", faults = last && last.closed ? Math.max(0, last.planned - last.played) : 0;
  const lost = faults ? `, ${faults} more lost to faults` : "";
  at("held").replaceChildren(...(last ? [make("strong", share(last.successes / last.played)),
    make("span", `${last.closed ? "" : over ? " when it broke off" : " so far"} (${last.successes} of ${last.played} episodes${lost}), 95 % interval ` +
      `${share(last.low)} to ${share(last.high)}. Round ${last.name}, weights of step ${last.step}, ${decoding(last)}, all families.`)] :
    [make("span", over ? "No held-out round was played." : "No held-out round has been played yet.")]));
  const alike = last ? played.filter((one) => one.temperature === last.temperature) : [];
  const points = alike.map((one) => ({x: one.step, y: one.successes / one.played, low: one.low, high: one.high}));
  at("held-curve").replaceChildren(...[chart("Held-out success", "share of episodes", "step of the weights", points, true)].filter(Boolean));
  at("rounds").replaceChildren(...(rounds.length ? [table(["Round", "Step", "Success, 95 % interval", "Played"],
    rounds.map((one) => [one.name, one.step, one.played ? `${share(one.successes / one.played)}, ${share(one.low)} to ${share(one.high)}` : "",
      `${one.played} of ${one.planned}${one.closed ? "" : over || one.played ? `, ${broken}` : ", waits"}`]))] : []));
}

function showRun(run) {
  document.title = `${run.run} ${run.state}`;
  at("name").textContent = run.run;
  at("state").textContent = run.state;
  at("state").className = run.state === "ok" || run.state === "running" ? "good" : "bad";
  at("reason").textContent = run.reason;
  over = run.state !== "running";
  at("h-now").textContent = over ? "At its end" : "Now";
  sayLogs();
  for (const tile of seats.values()) sayTile(tile);
  numbers(run);
  showHeldOut(run.rounds);
  saySeats();
  sayHarder(run);
  const count = short, marks = Object.entries(run.quarantine).map(([what, cause]) => [`${what}: ${cause}`, 1]);
  at("bars").replaceChildren(...[
    bars(`seats' time in ${over ? "the run's" : "the"} last ten minutes`, run.stages_s, duration),
    bars("groups by how they ended", run.endings, count), bars("episodes broken by faults, by cause", run.faults, count),
    bars("trained episodes by steps between playing and training", run.staleness, count),
    bars("groups whose episodes all succeeded, by family, newest step", run.all_right, share),
    bars("groups whose episodes all failed, by family, newest step", run.all_wrong, share),
    bars("in quarantine", Object.fromEntries(marks), () => ""),
  ].filter(Boolean));
  if (!at("bars").childElementCount) at("bars").append(make("p", over ? "Nothing was recorded." : "Nothing has been recorded yet."));
  const places = Object.entries(run.machines).sort().map(([name, machine]) => [name, machine || "this one"]);
  at("samplers").replaceChildren(...[
    run.samplers.length && (over ? table(["Sampler", "Last served weights"], run.samplers.map((one) => [one.name, one.version])) :
      table(["Sampler", "Serves weights", "Tokens a second"],
        run.samplers.map((one) => [one.name, one.version, one.tokens_s === null ? "not known" : short(one.tokens_s)]))),
    Object.values(run.machines).some(Boolean) && table(["Process", "Machine"], places),
    !run.samplers.length && make("p", over ? "No sampler served weights." : "No sampler serves weights yet."),
  ].filter(Boolean));
}

const WIDE = 360, HIGH = 176, RIGHT = 346, TOP = 10, FOOT = 132;  // of a chart, in its own units

function drawn(name, attributes, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (words !== undefined) made.textContent = words;
  return made;
}

// Points {x, y}, with {low, high} where they have an interval. A share's axis is 0 to 1. Fewer than two are no curve.
function chart(title, unit, along, points, isShare) {
  if (points.length < 2) return null;
  const values = points.flatMap((one) => [one.y, one.low ?? one.y, one.high ?? one.y]);
  const low = isShare ? 0 : Math.min(...values), high = isShare ? 1 : Math.max(...values);
  const first = points[0].x, last = points[points.length - 1].x;
  const marks = high > low ? [low, (low + high) / 2, high] : [low];
  const left = 14 + 7.5 * Math.max(...marks.map((y) => short(y).length));  // room for the longest of them
  const across = (x) => left + (RIGHT - left) * (last > first ? (x - first) / (last - first) : 0.5);
  const up = (y) => FOOT - (FOOT - TOP) * (high > low ? (y - low) / (high - low) : 0.5);
  const what = unit === title.toLowerCase() ? title : `${title}, ${unit}`;
  const told = `${what}: ${short(points[points.length - 1].y)} at ${along} ${last}`;
  const picture = drawn("svg", {viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": told});
  picture.append(drawn("path", {class: "axis", d: `M${left - 6} ${TOP}V${FOOT}H${RIGHT}`}));
  for (const y of marks) {
    picture.append(drawn("path", {class: "grid", d: `M${left - 6} ${up(y)}H${RIGHT}`}));
    picture.append(drawn("text", {x: left - 10, y: up(y) + 4, "text-anchor": "end"}, short(y)));
  }
  for (const [x, anchor] of [[first, "start"], [last, "end"]]) {
    picture.append(drawn("text", {x: across(x), y: FOOT + 16, "text-anchor": anchor}, short(x)));
  }
  picture.append(drawn("text", {x: (left + RIGHT) / 2, y: FOOT + 34, "text-anchor": "middle"}, along));
  picture.append(drawn("polyline", {points: points.map((one) => `${across(one.x)},${up(one.y)}`).join(" ")}));
  for (const one of points.filter((point) => point.low !== undefined)) {
    picture.append(drawn("path", {class: "interval", d: `M${across(one.x)} ${up(one.low)}V${up(one.high)}`}));
    picture.append(drawn("circle", {cx: across(one.x), cy: up(one.y), r: 3.5}));
  }
  const figure = make("figure");
  figure.append(make("figcaption", `${what}: ${short(points[points.length - 1].y)}`), picture);
  return figure;
}

function showCharts(charts) {
  const shown = charts.map((one) => chart(one.title, one.unit, one.along, one.points.map(([x, y]) => ({x, y})), one.share)).filter(Boolean);
  at("curves").replaceChildren(...(shown.length ? shown : [make("p", "No curve: it takes two optimizer steps of a phase.")]));
}

function sayHarder(run) {
  at("harder").hidden = !run.steps.rl;
  at("harder").textContent = run.harder ?
    "Training tasks get harder as the policy learns, so training success may fall while held-out success rises." :
    "Training success is of the tasks that happened to be in a batch. Held-out success, above, says what was learned.";
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
  tile.picture.addEventListener("error", () => {  // remembered ones have none: a plain box, no broken picture
    tile.picture.removeAttribute("src");
    tile.title = `${tile.picture.alt}; no screenshot was kept`;
    tile.picture.alt = "";
  });
  tile.said = make("span");
  tile.append(tile.picture, make("b", name), tile.said);
  seats.set(name, tile);
  at("wall").append(tile);
  sight.observe(tile);
  return tile;
}

function sayTile(tile) {
  tile.busy = Boolean(tile.trace) && !over;
  tile.className = `seat${tile.busy ? " busy" : ""}`;
  const plays = tile.trace ? `${tile.trace} ${tile.task}` : "waits for work";
  tile.said.textContent = over ? "" : plays;
}

function showSeats(changed) {
  for (const [name, trace, task, token, success] of changed) {
    const tile = tileOf(name);
    Object.assign(tile, {trace, task});
    sayTile(tile);
    if (token) {
      tile.token = token;
      tile.href = `${base}/episodes/${token}`;
      tile.picture.alt = `${name}, its newest episode: ${success ? "success" : "failure"}`;
      tile.title = "";
      if (tile.inSight) waiting.add(tile);
    }
  }
  saySeats();
}

function saySeats() {
  const busy = [...seats.values()].filter((tile) => tile.busy).length;
  at("seats-said").textContent = !seats.size ? (over ? "No seat played." : "No seat has played yet.") :
    over ? "The run has ended: no seat plays. A seat opens its last finished episode." :
      `${busy} of ${seats.size} play. A seat opens its newest finished episode.`;
}

function trouble(words) {
  at("trouble").textContent = words;
  at("trouble").hidden = !words;
}

at("to-episodes").href = `${base}/episodes`;
at("to-learned").href = `${base}/learned`;
const live = new EventSource(`${base}/live`);
for (const [name, show] of [["run", showRun], ["charts", showCharts], ["seats", showSeats], ["trouble", trouble]]) {
  live.addEventListener(name, (event) => show(JSON.parse(event.data)));
}
live.addEventListener("open", () => trouble(""));
live.addEventListener("error", () => trouble("The page's server does not answer. It is asked again every second."));

const LOG_LINES = 500;
let following = null, answers = null;

function sayLogs() {
  if (answers === null) return;
  const newest = over ? "The run has ended: its last lines." : "Follows by itself, newest line last.";
  at("logs-said").textContent = answers ? `${newest} A change of a field applies at once.` : "The logs do not answer. They are asked again.";
}

function follow() {
  if (following) following.close();
  const asked = new URLSearchParams([...new FormData(at("filter"))].filter(([, value]) => value));
  following = new EventSource(`${base}/logs?${asked}`);
  following.addEventListener("open", () => {
    at("logs").replaceChildren();
    answers = true;
    sayLogs();
  });
  following.addEventListener("lines", (message) => {
    const {lines, left_out: leftOut} = JSON.parse(message.data), box = at("logs");
    const below = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    if (leftOut) box.append(make("div", `(${leftOut} lines left out)`));
    for (const [level, words] of lines) box.append(make("div", words, {class: level}));
    while (box.childElementCount > LOG_LINES) box.firstElementChild.remove();
    if (below) box.scrollTop = box.scrollHeight;
  });
  following.addEventListener("error", () => {
    answers = false;
    sayLogs();
  });
}

at("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  follow();
});
at("filter").addEventListener("change", follow);
follow();
