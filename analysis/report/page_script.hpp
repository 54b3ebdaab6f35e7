// What the page says of a plot where it is pointed at. The policy in the page allows this script and no other by its
// hash; the page is whole without it.
#pragma once

namespace lockstep::analysis {

// No character in it has a meaning of its own in HTML or XML.
inline constexpr const char* page_script = R"(
"use strict";
const numbers = words => words ? words.split(" ").map(Number) : [];
const say = value => Number.isInteger(value) ? value.toLocaleString("en")
  : value.toLocaleString("en", {maximumSignificantDigits: 4});
const range = (from, end) => end > from + 1 ? say(from) + " to " + say(end - 1) : say(from);
for (const figure of document.querySelectorAll("figure[data-area]")) {
  const svg = figure.querySelector("svg.plot"), size = svg.viewBox.baseVal;
  const [left, right, bottom, top] = numbers(figure.dataset.area);
  const axis = (words, from, to) => {
    const [low, high, logarithmic] = numbers(words);
    const share = logarithmic ? value => Math.log(value / low) / Math.log(high / low)
      : value => (value - low) / (high - low);
    return value => from + (to - from) * share(value);
  };
  const x = axis(figure.dataset.x, left, right), y = axis(figure.dataset.y, bottom, top);
  const [xName, yName] = figure.dataset.names.split("|");
  const points = [], boxes = [];
  for (const one of figure.querySelectorAll("[data-curve]")) {
    const values = numbers(one.dataset.points);
    for (let i = 0; values.length > i; i += 2) {
      const at = {x: x(values[i]), y: y(values[i + 1])};
      if (Number.isFinite(at.x + at.y)) points.push({...at, curve: one.dataset.curve,
        across: xName + ": " + say(values[i]), up: yName + ": " + say(values[i + 1])});
    }
  }
  for (const one of figure.querySelectorAll("[data-box]")) {
    const [from, to, low, high] = numbers(one.dataset.box), sides = [x(from), x(to)], ends = [y(low), y(high)];
    boxes.push({left: Math.min(...sides), right: Math.max(...sides), top: Math.min(...ends), bottom: Math.max(...ends),
      words: one.dataset.words});
  }
  const map = figure.querySelector("[data-values]");
  const values = map ? map.dataset.values.split(" ") : [];
  const steps = numbers(map?.dataset.steps), ranks = numbers(map?.dataset.ranks);
  // What is at a place of the drawing, and where to mark it.
  const find = (px, py) => {
    const outside = left - 8 > px || px > right + 8 || top - 8 > py || py > bottom + 8;
    if (outside) return null;
    if (map) {
      const columns = steps.length - 1, rows = ranks.length - 1;
      const column = Math.floor((px - left) / (right - left) * columns);
      const row = Math.floor((py - top) / (bottom - top) * rows);
      if (0 > column || column >= columns || 0 > row || row >= rows) return null;
      const value = values[row * columns + column];
      return {x: left + (column + 0.5) * (right - left) / columns, y: top + (row + 0.5) * (bottom - top) / rows,
        words: "rank " + range(ranks[row], ranks[row + 1]) + "\nstep " + range(steps[column], steps[column + 1]) + "\n" +
          (value === "-" ? "not measured" : "computation: " + say(Number(value)) + " " + map.dataset.unit)};
    }
    for (const box of boxes)
      if (px >= box.left) if (box.right >= px) if (py >= box.top) if (box.bottom >= py)
        return {x: (box.left + box.right) / 2, y: box.top, words: box.words};
    let best = null, least = Infinity;
    for (const point of points) {
      const distance = Math.hypot(point.x - px, point.y - py);
      if (least > distance) { least = distance; best = point; }
    }
    if (!best) return null;
    // Curves that meet there are all named.
    const here = points.filter(point => point.across === best.across ? 1.5 > Math.abs(point.y - best.y) : false);
    const words = here.length > 1 ? [best.across, ...here.map(point => point.curve + "; " + point.up)]
      : [best.curve, best.across, best.up];
    return {x: best.x, y: best.y, words: words.join("\n")};
  };
  const note = document.createElement("div"), mark = document.createElementNS(svg.namespaceURI, "circle");
  note.className = "note";
  mark.setAttribute("class", "mark");
  mark.setAttribute("r", 5);
  note.hidden = true;
  figure.append(note);
  const hide = () => { note.hidden = true; mark.remove(); };
  const show = event => {
    const box = svg.getBoundingClientRect(), scale = box.width / size.width;
    const found = find((event.clientX - box.left) / scale, (event.clientY - box.top) / scale);
    if (!found) return hide();
    note.textContent = found.words;
    note.hidden = false;
    const atRight = found.x > size.width / 2, atBottom = found.y > size.height / 2;
    note.style.left = atRight ? "auto" : found.x * scale + 12 + "px";
    note.style.right = atRight ? box.width - found.x * scale + 12 + "px" : "auto";
    note.style.top = atBottom ? "auto" : found.y * scale + 12 + "px";
    note.style.bottom = atBottom ? figure.clientHeight - found.y * scale + 12 + "px" : "auto";
    if (points.length > 0) {
      mark.setAttribute("cx", found.x);
      mark.setAttribute("cy", found.y);
      svg.append(mark);
    }
  };
  svg.addEventListener("pointermove", show);
  svg.addEventListener("pointerdown", show);
  svg.addEventListener("pointerleave", event => { if (event.pointerType !== "touch") hide(); });
}
)";

// Of the text between <script> and </script>, SHA-256 in base 64. A test recomputes it.
inline constexpr const char* page_script_hash = "sha256-7zix1MqDnGni7eaMjnGoPYjFpg0Va8o/pIEtW3wYTj8=";

}  // namespace lockstep::analysis
