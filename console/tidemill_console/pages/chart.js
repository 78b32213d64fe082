// Lines over time, drawn as SVG: small, without a library, in the colours of the theme.
//
// A chart is a picture; the numbers that matter now stand beside it as text, and its label says them to who cannot see it.

import { clear, h, say, svg } from "./dom.js";
import { clock, short } from "./format.js";

const WIDTH = 640;
const LEFT = 46;
const BOTTOM = 20;
const TOP = 8;
const SPAN_MIN_MS = 60_000;

export function lineChart(title, names, height = 170) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": title, preserveAspectRatio: "none" });
  const shown = h("span", { class: "readout" });
  const legend = h("span", { class: "legend" }, names.map((name, index) => h("span", { class: `key line-${index}` }, name)));
  const caption = h("figcaption", {}, h("strong", {}, title), names.length > 1 && legend, shown);
  const node = h("figure", { class: "chart" }, caption, drawing);
  let frame = null;

  function update(lines) {
    frame = frameOf(lines, height);
    clear(drawing, axes(frame, height), lines.map((line, index) => path(frame, line, index)), svg("line", { class: "cursor" }));
    const last = lines.map((line, index) => `${names[index]} ${short(line.at(-1)?.[1] ?? 0)}`).join(", ");
    drawing.setAttribute("aria-label", `${title}: now ${last}`);
    tell(lines);
  }

  function tell(lines, at = null) {
    const values = lines.map((line) => (at === null ? line.at(-1) : nearest(line, at)));
    const some = values.find((one) => one);
    say(shown, some ? `${at === null ? "now" : clock(some[0])}: ${values.map((one, index) => `${names.length > 1 ? `${names[index]} ` : ""}${one ? short(one[1]) : "–"}`).join(", ")}` : "gathering…");
    frame.lines = lines;
  }

  drawing.addEventListener("pointermove", (event) => {
    if (!frame?.lines) return;
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    const at = frame.from + ((x - LEFT) / (WIDTH - LEFT)) * (frame.to - frame.from);
    const cursor = drawing.querySelector(".cursor");
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: TOP, y2: height - BOTTOM })) cursor?.setAttribute(name, value);
    tell(frame.lines, at);
  });
  drawing.addEventListener("pointerleave", () => frame?.lines && tell(frame.lines));
  return { node, update };
}

function frameOf(lines, height) {
  const points = lines.flat();
  const to = points.length ? Math.max(...points.map((one) => one[0])) : Date.now();
  const from = Math.min(to - SPAN_MIN_MS, ...points.map((one) => one[0]));
  const top = ceiling(Math.max(1, ...points.map((one) => one[1])));
  const x = (at) => LEFT + ((at - from) / (to - from)) * (WIDTH - LEFT - 4);
  const y = (value) => height - BOTTOM - (value / top) * (height - BOTTOM - TOP);
  return { from, to, top, x, y };
}

// The next of 1, 2, 4 (of which quarters are whole) times a power of ten.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].find((one) => one * power >= value) * power;
}

function axes(frame, height) {
  const rows = [0, 0.5, 1].map((part) => {
    const y = frame.y(part * frame.top);
    return [
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y, y2: y }),
      svg("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, short(part * frame.top)),
    ];
  });
  const times = [0, 0.5, 1].map((part) => {
    const at = frame.from + part * (frame.to - frame.from);
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    return svg("text", { x: frame.x(at), y: height - 4, "text-anchor": anchor }, clock(at));
  });
  return [rows, times];
}

function path(frame, line, index) {
  if (!line.length) return null;
  const steps = line.map(([at, value], step) => `${step ? "L" : "M"}${frame.x(at).toFixed(1)} ${frame.y(value).toFixed(1)}`);
  return svg("path", { class: `line line-${index}`, d: steps.join(""), "vector-effect": "non-scaling-stroke" });
}

function nearest(line, at) {
  return line.reduce((best, one) => (!best || Math.abs(one[0] - at) < Math.abs(best[0] - at) ? one : best), undefined);
}

// How a number went, as small as a word.
export function sparkline(points, label) {
  const width = 96;
  const height = 20;
  const drawing = svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (points.length < 2) return drawing;
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const top = Math.max(1, ...points.map((one) => one[1]));
  const some = points.length > width ? points.filter((_, index) => index % Math.ceil(points.length / width) === 0 || index === points.length - 1) : points;
  const steps = some.map(([at, value], step) => `${step ? "L" : "M"}${(((at - from) / (to - from)) * (width - 2) + 1).toFixed(1)} ${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  drawing.append(svg("path", { class: "line line-0", d: steps.join("") }));
  return drawing;
}
