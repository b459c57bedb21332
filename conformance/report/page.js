"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("cases");

/** An element with a class and a text, which is never parsed as HTML. */
function element(tag, className, text) {
  const created = document.createElement(tag);
  if (className) created.className = className;
  if (text) created.textContent = text;
  return created;
}

/** The message, reason and reproducer of a case that did not pass. */
function notes(run, place) {
  return (run.notes[place] ?? []).map((text) => data.texts[text]);
}

/** The cases of one status, grouped by their reason or message. */
function group(letter, places, run) {
  const [status, mark] = data.statuses[letter];
  const box = element("details");
  box.open = letter !== "p";
  box.append(element("summary", status, `${mark} ${places.length} ${status}`));
  const shared = new Map();
  for (const place of places) {
    const [message, reason] = notes(run, place);
    const heading = letter === "d" ? reason : letter === "i" ? message : "";
    shared.set(heading, [...(shared.get(heading) ?? []), place]);
  }
  for (const [heading, members] of shared) {
    if (heading) box.append(element("p", status, heading));
    for (const place of members) {
      const [message, , reproducer] = notes(run, place);
      const item = element("div", "case");
      item.append(element("code", "", data.cases[place][0]));
      if (message && message !== heading) item.append(element("p", "", message));
      if (reproducer) {
        const code = element("details");
        code.append(element("summary", "", "reproducer"), element("pre", "", reproducer));
        item.append(code);
      }
      box.append(item);
    }
  }
  return box;
}

function show(cell) {
  const { feature, dtype } = cell.dataset;
  const run = data.runs[Number(cell.dataset.run)];
  const places = { f: [], d: [], p: [], i: [] };
  data.cases.forEach(([, itsFeature, itsDtype], place) => {
    if ((feature && feature !== itsFeature) || (dtype && dtype !== itsDtype)) return;
    places[run.letters[place]]?.push(place);
  });
  document.getElementById("title").textContent = [run.name, feature || "all features", dtype].filter(Boolean).join(" · ");
  const groups = Object.entries(places).filter(([, members]) => members.length);
  document.getElementById("groups").replaceChildren(...groups.map(([letter, members]) => group(letter, members, run)));
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Show or hide the rows of a feature's dtypes. */
function expand(button, open) {
  button.setAttribute("aria-expanded", String(open));
  for (const row of button.closest("tbody").querySelectorAll(".dtype")) row.hidden = !open;
}

/** Make a button a toggle. */
function toggle(id, change) {
  const button = document.getElementById(id);
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    change(pressed);
  });
}

for (const cell of document.querySelectorAll(".cell")) cell.addEventListener("click", () => show(cell));
const names = document.querySelectorAll(".name");
for (const name of names) name.addEventListener("click", () => expand(name, name.getAttribute("aria-expanded") !== "true"));
toggle("all", (pressed) => names.forEach((name) => expand(name, pressed)));
toggle("wrong", (pressed) => document.body.classList.toggle("only-wrong", pressed));
document.getElementById("close").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
