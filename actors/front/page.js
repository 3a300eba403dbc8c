"use strict";
// Asks for the state again and again. Every word of the desktop is written as text.
const at = (id) => document.getElementById(id);
let shown = -1;

function draw(state) {
  at("task").textContent = state.instruction;
  at("turn").textContent = state.verdict ? "" : `turn ${state.turn + 1} of at most ${state.max_turns}`;
  at("said").textContent = state.verdict || (state.last ? `last: ${state.last}` : "");
  if (state.look === shown) return;
  shown = state.look;
  at("picture").src = `/screen.jpg?look=${state.look}`;
  at("prompt").textContent = state.prompt;
  at("names").replaceChildren(...state.elements.map(([name, x, y, w, h]) => {
    const box = document.createElement("b"), label = document.createElement("span");
    label.textContent = name;
    box.append(label);
    const part = (value, of) => `${(100 * value) / of}%`;
    const [width, height] = state.screen;
    Object.assign(box.style, { left: part(x, width), top: part(y, height), width: part(w, width), height: part(h, height) });
    return box;
  }));
}

async function look() {
  try {
    const answer = await fetch("/state");
    if (answer.ok) draw(await answer.json());
  } catch {
    at("said").textContent = "the program has ended";
  }
  setTimeout(look, 500);
}
look();
