"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const dialog = document.getElementById("cases");

/** An element with a class and, as text that is never read as HTML, its content. */
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

/** What a run says of a case that does not pass: its message, reason and reproducer. */
function noted(run, place) {
  return (run.notes[place] ?? []).map((text) => data.texts[text]);
}

/** The cases of one status, each reason or message once, with the cases that share it below. */
function group(letter, places, run) {
  const [status, mark] = data.statuses[letter];
  const made = element("details");
  made.open = letter !== "p";
  made.append(element("summary", status, `${mark} ${places.length} ${status}`));
  const shared = new Map();
  for (const place of places) {
    const [message, reason] = noted(run, place);
    const heading = letter === "d" ? reason : letter === "i" ? message : "";
    shared.set(heading, [...(shared.get(heading) ?? []), place]);
  }
  for (const [heading, members] of shared) {
    if (heading) made.append(element("p", status, heading));
    for (const place of members) {
      const [message, , reproducer] = noted(run, place);
      const item = element("div", "case");
      item.append(element("code", "", data.cases[place][0]));
      if (message && message !== heading) item.append(element("p", "", message));
      if (reproducer) {
        const code = element("details");
        code.append(element("summary", "", "reproducer"), element("pre", "", reproducer));
        item.append(code);
      }
      made.append(item);
    }
  }
  return made;
}

function show(cell) {
  const { feature, dtype } = cell.dataset;
  const run = data.runs[Number(cell.dataset.run)];
  const found = { f: [], d: [], p: [], i: [] };
  data.cases.forEach(([, itsFeature, itsDtype], place) => {
    if ((feature && feature !== itsFeature) || (dtype && dtype !== itsDtype)) return;
    found[run.letters[place]]?.push(place);
  });
  document.getElementById("title").textContent = [run.name, feature || "all features", dtype].filter(Boolean).join(" · ");
  const groups = Object.entries(found).filter(([, places]) => places.length);
  document.getElementById("groups").replaceChildren(...groups.map(([letter, places]) => group(letter, places, run)));
  dialog.showModal();
  dialog.scrollTop = 0;
}

/** Show or hide the rows of a feature's dtypes. */
function expand(button, open) {
  button.setAttribute("aria-expanded", String(open));
  for (const row of button.closest("tbody").querySelectorAll(".dtype")) row.hidden = !open;
}

/** A button that is pressed or not. */
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
