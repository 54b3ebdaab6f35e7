// How the report looks: on a phone, on a desk, on paper, on light and dark screens.
#pragma once

#include <string>

#include "analysis/report/colours.hpp"

namespace lockstep::analysis {

// No character in it has a meaning of its own in HTML or XML.
inline constexpr const char* page_rules = R"(
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
main { max-width: 92rem; margin: 0 auto; padding: 1.5rem 1.1rem 3rem; overflow-wrap: break-word; }
p, ul, dl, figcaption { max-width: 44rem; }
h1, h2, h3, h4 { line-height: 1.25; font-weight: 650; margin: 0; }
h1 { font-size: 1.75rem; }
h2 { font-size: 1.3rem; margin-top: 2.6rem; padding-top: 0.8rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1.08rem; margin-top: 1.7rem; }
h4 { font-size: 1rem; margin-top: 1.3rem; }
p { margin: 0.6rem 0; }
p.lead { font-size: 1.08rem; }
p.soft, footer { color: var(--soft); font-size: 0.9rem; }
ul.remarks { list-style: none; padding: 0; margin: 0.9rem 0; }
ul.remarks li { margin: 0.5rem 0; padding: 0.5rem 0.8rem; background: var(--tint); border-left: 4px solid var(--rule); }
ul.remarks li.warning { background: var(--mark-tint); border-left-color: var(--mark); }
ul.remarks li.warning strong { color: var(--mark); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 0.4rem 2rem; }
figure { margin: 1.1rem 0; min-width: 0; max-width: 38rem; position: relative; }
svg.plot { display: block; width: 100%; height: auto; background: var(--paper); color: var(--words); }
svg.plot text { fill: inherit; }
svg.plot image { image-rendering: pixelated; }
figure[data-area] svg.plot { cursor: crosshair; }
.mark { fill: none; stroke: var(--ink); stroke-width: 2px; pointer-events: none; }
.note { position: absolute; z-index: 2; max-width: 20rem; padding: 0.3rem 0.55rem; white-space: pre-line;
  pointer-events: none; background: var(--tint); color: var(--ink); border: 1px solid var(--frame); border-radius: 4px;
  font-size: 0.82rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
.note[hidden] { display: none; }
ul.legend { list-style: none; margin: 0.2rem 0 0.5rem; padding: 0; display: grid; gap: 0.1rem 0.8rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 10.2rem), 1fr)); font-size: 0.8rem; line-height: 1.3; }
ul.legend li { display: flex; gap: 0.45rem; align-items: center; min-width: 0; }
ul.legend span { min-width: 0; overflow-wrap: anywhere; }
svg.swatch { flex: none; width: 30px; height: 14px; }
figcaption { margin-top: 0.4rem; font-size: 0.9rem; color: var(--soft); }
figcaption b { color: var(--ink); font-weight: 650; }
/* A shadow where a table goes on: the covers scroll with the table, the shadows stay. */
.scroll { overflow-x: auto; margin: 1rem 0; width: fit-content; max-width: 100%; scrollbar-width: thin;
  scrollbar-color: var(--frame) var(--tint);
  background: linear-gradient(to right, var(--paper) 30%, transparent) left / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 1.1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 1.1rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: 0.82rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 650; padding-bottom: 0.35rem; }
caption span { display: inline-block; position: sticky; left: 0; width: max-content;
  max-width: calc(100vw - 2.4rem); }
th, td { padding: 0.28rem 0.42rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--rule);
  white-space: normal; min-width: 3.4rem; }
tbody th { font-weight: 500; white-space: normal; overflow-wrap: anywhere; min-width: 3.4rem; max-width: 15rem; }
tbody th.words { min-width: 6.5rem; }
th:first-child { padding-left: 0; position: sticky; left: 0; background: var(--paper); }
.words { text-align: left; }
@media (max-width: 48rem) { thead th { min-width: 5.2rem; } tbody th, thead th:first-child { min-width: 3.4rem; } }
dt { font-weight: 650; margin-top: 0.8rem; }
dd { margin: 0.1rem 0 0; }
footer { margin-top: 3rem; padding-top: 0.8rem; border-top: 1px solid var(--rule); }
code { font-family: ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; font-size: 0.9em;
  overflow-wrap: anywhere; }
@media print {
  @page { margin: 16mm 14mm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  p, ul, dl, figcaption { max-width: none; }
  h1, h2, h3, h4, h2 + p, caption { break-after: avoid; }
  figure, table, tr, li, dt, ul.remarks li { break-inside: avoid; }
  dt { break-after: avoid; }
  ul.remarks li.warning { border: 1px solid #000000; border-left-width: 4px; }
  .figures { display: grid; grid-template-columns: 1fr 1fr; gap: 0 8mm; }
  figure { max-width: 120mm; }
  .scroll { overflow: visible; width: auto; background: none; }
  .note, .mark { display: none; }
  table { font-size: 7.4pt; }
  th, td { padding: 0.6mm 1.3mm; }
  thead th { min-width: 0; }
  td.words, th.words { white-space: normal; min-width: 20mm; }
  th:first-child { position: static; }
  caption span { position: static; max-width: none; }
}
)";

// The rules, with the colours of both schemes before them and those of print behind.
inline std::string page_style() {
    const std::string light = scheme_variables(false);
    return "\n:root { color-scheme: light dark; --ink: #1c2126; --soft: #55606b; --paper: " + std::string(light_paper) +
           "; --rule: #d4d9de; --tint: #f3f5f7; --mark: #9a4a00; --mark-tint: #fff3e2; --shade: #00000040;\n " + light +
           " }\n@media (prefers-color-scheme: dark) {\n  :root { --ink: #e4e7ea; --soft: #a5afb8; --paper: " +
           dark_paper +
           "; --rule: #3a4148; --tint: #20252a; --mark: #ffb561; --mark-tint: #33271a; --shade: #ffffff40;\n   " +
           scheme_variables(true) + " }\n}" + page_rules +
           "@media print {\n  :root { color-scheme: light; --ink: #000000; --soft: #333333; --paper: #ffffff; --rule: "
           "#999999; --tint: #ffffff; --mark: #000000; --mark-tint: #ffffff;\n   " +
           light + " }\n}\n";
}

}  // namespace lockstep::analysis
