"use strict";
// Draws every chart of the page in the colours of the reader's theme, on paper in the light ones.
const made = JSON.parse(document.getElementById("charts").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const NARROW = 560, ENTRY = 20, FEW = 3, LETTER = 6.2, EDGES = 56;

function colour(name, theme) {
  const found = /^@([a-z]+\d?)(?:\/(0?\.\d+))?$/.exec(name);
  if (!found || !(found[1] in made.themes[theme])) return name;
  const text = made.themes[theme][found[1]];
  if (!found[2]) return text;
  const part = (i) => parseInt(text.slice(i, i + 2), 16);
  return `rgba(${part(1)},${part(3)},${part(5)},${found[2]})`;
}

function coloured(key, value, theme) {
  if (typeof value === "string") return key.endsWith("color") ? colour(value, theme) : value;
  if (Array.isArray(value)) return value.map((one) => coloured(key, one, theme));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, coloured(name, one, theme)]));
}

// The name above a bar, cut where its figure at the end of the same line begins. Both are escaped: `&lt;` is one letter.
function beside(note, notes, width) {
  const other = notes.find((one) => one !== note && one.y === note.y && one.xanchor === "right");
  if (!other || note.xanchor !== "left") return note;
  const letters = (text) => text.replace(/<[^>]*>/g, "").match(/&\w+;|./gu) || [];
  const own = letters(note.text), room = Math.floor((width - EDGES) / LETTER - 1.25 * letters(other.text).length - 1);
  return own.length <= room ? note : { ...note, text: `${own.slice(0, Math.max(room - 1, 4)).join("").trimEnd()}…` };
}

// On a narrow screen the legend takes a line for each entry: the chart grows by as much.
function fitted(layout, data, width) {
  if (width >= NARROW) return layout;
  const named = data.filter((trace) => trace.showlegend !== false && layout.showlegend !== false).length;
  const height = layout.height + ENTRY * Math.max(0, named - 2);
  const annotations = (layout.annotations || []).map((one, _, all) => ({
    ...beside(one, all, width), font: { ...one.font, size: 11 },
  }));
  const axes = Object.fromEntries(Object.entries(layout).filter(([name, one]) => /^xaxis/.test(name) && one.nticks)
    .map(([name, one]) => [name, { ...one, nticks: FEW }]));
  return { ...layout, ...axes, height, annotations, font: { ...layout.font, size: 12 } };
}

// Charts inside a closed part of the page have no width: they are drawn when it is opened.
function draw(theme, width) {
  for (const [key, spec] of Object.entries(made.charts)) {
    const place = document.getElementById(`chart-${key}`);
    if (!place.clientWidth) continue;
    const { data, layout } = coloured("", spec, theme);
    const shown = fitted(layout, data, width || place.clientWidth);
    place.style.height = `${shown.height}px`;
    if (width) shown.width = width;
    const filename = `archsim-${key}`;
    const config = { ...made.config, toImageButtonOptions: { format: "png", scale: 2, filename } };
    Plotly.react(place, data, shown, config);
  }
}

const now = () => draw(dark.matches ? "dark" : "light");
if (window.Plotly) {
  now();
  dark.addEventListener("change", now);
  addEventListener("beforeprint", () => draw("light", 640));
  addEventListener("afterprint", now);
  for (const part of document.querySelectorAll("details:has(.chart)")) part.addEventListener("toggle", now);
} else {
  for (const place of document.querySelectorAll(".chart")) {
    place.textContent = "plotly.js could not be loaded: the numbers stand in the table below.";
    place.style.height = "auto";
    for (const twin of place.parentElement.querySelectorAll("details")) twin.open = true;
  }
}
