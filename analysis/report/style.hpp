// How the report looks: on a phone, on a desk, on paper, on light and dark screens.
#pragma once

namespace lockstep::analysis {

// No character in it has a meaning of its own in HTML or XML.
inline constexpr const char* page_style = R"(
:root { color-scheme: light dark; --ink: #1c2126; --soft: #55606b; --paper: #ffffff; --rule: #d4d9de; --tint: #f3f5f7;
  --mark: #9a4a00; --mark-tint: #fff3e2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ea; --soft: #a5afb8; --paper: #16191c; --rule: #3a4148; --tint: #20252a; --mark: #ffb561;
    --mark-tint: #33271a; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1.5rem 1.1rem 3rem; overflow-wrap: break-word; }
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
figure { margin: 1.1rem 0; min-width: 0; max-width: 33rem; }
figure svg { display: block; width: 100%; height: auto; background: #ffffff; border-radius: 3px; }
figure svg image { image-rendering: pixelated; }
figcaption { margin-top: 0.4rem; font-size: 0.9rem; color: var(--soft); }
figcaption b { color: var(--ink); font-weight: 650; }
.scroll { overflow-x: auto; margin: 1rem 0; max-width: 100%; }
table { border-collapse: collapse; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 650; padding-bottom: 0.35rem; }
caption span { display: inline-block; position: sticky; left: 0; width: max-content;
  max-width: calc(100vw - 2.4rem); }
th, td { padding: 0.28rem 0.5rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
thead th { vertical-align: bottom; font-weight: 600; color: var(--soft); border-bottom: 2px solid var(--rule);
  white-space: normal; min-width: 3.4rem; }
tbody th { font-weight: 500; white-space: normal; overflow-wrap: anywhere; min-width: 3.4rem; max-width: 15rem; }
tbody th.words { min-width: 6.5rem; }
th:first-child { padding-left: 0; position: sticky; left: 0; background: var(--paper); }
.words { text-align: left; }
dt { font-weight: 650; margin-top: 0.8rem; }
dd { margin: 0.1rem 0 0; }
footer { margin-top: 3rem; padding-top: 0.8rem; border-top: 1px solid var(--rule); }
code { font-family: ui-monospace, "DejaVu Sans Mono", "Liberation Mono", monospace; font-size: 0.9em;
  overflow-wrap: anywhere; }
@media print {
  :root { color-scheme: light; --ink: #000000; --soft: #333333; --paper: #ffffff; --rule: #999999; --tint: #ffffff;
    --mark: #000000; --mark-tint: #ffffff; }
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
  .scroll { overflow: visible; }
  table { font-size: 7.4pt; }
  th, td { padding: 0.6mm 1.3mm; }
  thead th { min-width: 0; }
  td.words, th.words { white-space: normal; min-width: 20mm; }
  th:first-child { position: static; }
  caption span { position: static; max-width: none; }
}
)";

}  // namespace lockstep::analysis
