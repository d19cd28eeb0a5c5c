"""The style sheet of the page: one column, system fonts, light."""

CSS = """
:root { color-scheme: light; --ink: #1f2328; --soft: #59616b;
  --line: #dfe3e8; --wash: #f6f7f9; --wrong: #bd1f01; --link: #1f5f9f;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue",
    Arial, "Noto Sans", sans-serif;
  --serif: Charter, "Bitstream Charter", "Iowan Old Style", "Sitka Text",
    Cambria, Georgia, serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono",
    monospace; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%;
  background: #fff; }
body { margin: 0 auto; padding: 2.5rem 1.25rem 4rem; max-width: 79rem;
  color: var(--ink); background: #fff; font: 1.0625rem/1.55 var(--serif); }
h1 { font-size: 2rem; line-height: 1.2; font-weight: 600; margin: 0 0 .5rem;
  overflow-wrap: anywhere; }
h2 { font-size: 1.375rem; line-height: 1.3; font-weight: 600;
  margin: 0 0 .5rem; }
h3 { font-size: 1.0625rem; font-weight: 600; margin: 1.75rem 0 .5rem;
  overflow-wrap: anywhere; }
p, .lead { max-width: 42rem; margin: 0 0 .75rem; overflow-wrap: anywhere; }
.kind { font: .875rem/1.4 var(--sans); color: var(--soft); margin: 0; }
section { border-top: 1px solid var(--line); padding-top: 1.5rem;
  margin-top: 2.75rem; scroll-margin-top: 0; }
.about p { font-size: .9375rem; line-height: 1.5; }
.shown > :first-child, .shown > :first-child > :first-child {
  margin-top: 0; }
a { color: var(--link); text-underline-offset: .15em; }
nav { font: .875rem/1.9 var(--sans); margin-top: 1.5rem; }
nav a { margin-right: 1.1em; white-space: nowrap; text-decoration: none;
  display: inline-block; }
nav a:hover { text-decoration: underline; }
code, pre { font-family: var(--mono); font-size: .84em;
  overflow-wrap: anywhere; }
pre { background: var(--wash); padding: .8rem 1rem; border-radius: 4px;
  line-height: 1.6; white-space: pre-wrap; margin: 0; }
pre code { display: block; font-size: 1em; padding-left: 2em;
  text-indent: -2em; }
code span { display: inline-block; max-width: 100%; text-indent: 0;
  word-break: break-all; }
.quiet, footer { color: var(--soft); font-size: .9375rem; }
.quiet + .quiet { margin-top: -.25rem; }
footer { margin-top: 3rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
ul.lead { padding-left: 0; list-style: none; }
ul.lead li { margin-bottom: .4rem; }

.panels { display: grid; gap: 2rem 1.75rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 21.25rem), 1fr));
  margin: 1.25rem 0; }
.panels.few { grid-template-columns:
  repeat(auto-fit, minmax(min(100%, 21.25rem), 26rem)); }
figure { margin: 0; min-width: 0; }
figcaption { font: .8125rem/1.45 var(--sans); color: var(--soft);
  margin-bottom: .4rem; overflow-wrap: anywhere; }
figcaption b { display: block; color: var(--ink); font-size: .9375rem;
  font-weight: 600; }
svg.figure { display: block; width: 100%; height: auto; max-width: 26rem;
  font-family: var(--sans); }
svg.figure text { fill: #3c434b; }
svg.figure * { stroke-linejoin: round; }
.mark { width: .75em; height: .75em; margin-right: .4em; flex: none;
  vertical-align: -.02em; }
.legend { list-style: none; margin: .75rem 0; padding: 0; display: flex;
  flex-wrap: wrap; gap: .15rem 1.1rem; font: .875rem/1.5 var(--sans);
  overflow-wrap: anywhere; }
.legend li { min-width: 0; display: flex; align-items: baseline; }

.scroll { overflow-x: auto; max-width: 100%; margin: 1rem 0; }
table { border-collapse: collapse; font: .875rem/1.4 var(--sans);
  font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem .4rem 0; text-align: left;
  vertical-align: baseline; font-weight: 400; border-bottom: 1px solid
  var(--line); }
thead th { color: var(--soft); vertical-align: bottom; font-size: .8125rem; }
thead bdi, td bdi { display: inline-block; max-width: 10rem;
  overflow-wrap: break-word; vertical-align: top; }
thead bdi { vertical-align: bottom; }
tbody th { min-width: 8rem; overflow-wrap: anywhere; }
th small, td small { color: var(--soft); font-size: .8125rem; }
th small { display: block; max-width: 27rem; }
table.numbers td, table.numbers th + th { text-align: right;
  white-space: nowrap; }
table.numbers thead th { white-space: normal; }
table.numbers td small { display: block; }
table.settings td { overflow-wrap: anywhere; min-width: 6rem; }
table.settings td.help { color: var(--soft); min-width: 14rem; }
.best { font-weight: 700; }
.best::before { content: "▸ "; color: var(--link); }
details { margin: 1rem 0; font: .9375rem/1.5 var(--sans); }
summary { cursor: pointer; color: var(--link); padding: .25rem 0; }

table.confusion { font-size: .75rem; border-collapse: separate;
  border-spacing: 1px; }
.confusion th, .confusion td { border: 0; padding: 0; }
.confusion td { width: 1.8rem; min-width: 1.8rem; height: 1.8rem;
  text-align: center; vertical-align: middle; background: var(--wash); }
.confusion tbody th { min-width: 0; max-width: 7rem; text-align: right;
  padding-right: .4rem; vertical-align: middle; overflow: hidden;
  text-overflow: ellipsis; white-space: nowrap; position: sticky; left: 0;
  background: #fff; }
.confusion thead th { height: 1.5rem; text-align: center; color: var(--ink);
  font-size: .75rem; }
.panel.large { grid-column: 1 / -1; }
.large .confusion td { width: 1.55rem; min-width: 1.55rem; height: 1.55rem; }
.confusion thead td { background: none; }
.confusion thead th.long { height: auto; padding-bottom: .3rem; }
.confusion thead th.long span { writing-mode: vertical-rl; max-height: 7rem;
  transform: rotate(180deg); overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; display: inline-block; }

.recall { list-style: none; margin: .75rem 0; padding: 0; max-width: 46rem;
  font: .8125rem/1.35 var(--sans); font-variant-numeric: tabular-nums;
  display: grid; align-items: center; gap: .4rem .75rem;
  grid-template-columns: fit-content(11rem) minmax(5rem, 1fr) auto; }
.recall li { display: contents; }
.recall .class { overflow-wrap: anywhere; }
.recall .class small { color: var(--soft); white-space: nowrap; }
.recall .track { position: relative; height: .75rem; margin: 0 .5rem; }
.recall .track::before { content: ""; position: absolute; left: 0; right: 0;
  top: 50%; border-top: 1px solid #c9ced6; }
.recall .track .mark { position: absolute; top: 0; margin: 0 0 0 -.375rem;
  width: .75rem; height: .75rem; }
.recall .values { display: flex; gap: .75rem; }
.recall .values span { min-width: 3.6rem; text-align: right; }
.recall .head { color: var(--soft); }
.recall .head .track { display: flex; justify-content: space-between;
  height: auto; margin: 0; }
.recall .head .track::before { border: 0; }

.strip { display: flex; flex-wrap: wrap; gap: .5rem .4rem;
  align-items: flex-start; }
.pictured figcaption { font-size: .75rem; line-height: 1.35; margin: 0; }
.pictured figcaption b { display: inline; font-size: inherit; }
.pictured { margin: 0; width: 4.5rem; font: .75rem/1.35 var(--sans);
  text-align: center; overflow-wrap: anywhere; }
.pictured img { display: block; width: 4.5rem; height: 4.5rem;
  image-rendering: pixelated; border: 2px solid transparent;
  border-radius: 3px; }
.pictured.photo img { image-rendering: auto; }
.pictured .words { display: -webkit-box; -webkit-line-clamp: 3;
  -webkit-box-orient: vertical; overflow: hidden; }
.pictured.wrong img { border-color: var(--wrong); }
.pictured.wrong .sign { color: var(--wrong); font-weight: 700; }
.pictured small { color: var(--soft); font-size: .75rem; }
.sample { display: grid; gap: .75rem 1.25rem; padding: .9rem 0;
  grid-template-columns: 7rem 1fr; border-bottom: 1px solid var(--line); }
.sample > .pictured { width: 7rem; text-align: left; }
.sample > .pictured img { width: 6rem; height: 6rem; }
.mistakes { display: grid; gap: 1rem .75rem;
  grid-template-columns: repeat(auto-fill, minmax(min(9rem, 30%), 1fr)); }
.mistakes .pictured { width: auto; text-align: left; }
.mistakes img { width: 100%; max-width: 8rem; height: auto;
  aspect-ratio: 1; margin-bottom: .2rem; }
.views { display: grid; gap: .25rem 2rem; grid-template-columns:
  repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
.views .strip { margin-bottom: .5rem; flex-wrap: nowrap; }
.views .pictured, .views img { width: 100%; max-width: 4.5rem; }
.views img { height: auto; aspect-ratio: 1; }
.views .pictured { flex: 1 1 0; min-width: 0; }
.views h4 { font: .8125rem/1.4 var(--sans); margin: .75rem 0 .25rem;
  overflow-wrap: anywhere; }

@media (max-width: 40rem) {
  body { padding: 1.5rem 1rem 3rem; font-size: 1rem; }
  h1 { font-size: 1.625rem; }
  section { margin-top: 2.25rem; }
  .about p { font-size: 1rem; }
  .sample { grid-template-columns: 5.5rem 1fr; gap: .75rem; }
  .sample > .pictured { width: 5.5rem; }
  .sample > .pictured img { width: 5rem; height: 5rem; }
  .sample .strip .pictured, .sample .strip img { width: 3.5rem; }
  .sample .strip img { height: 3.5rem; }
  .recall { gap: .4rem; grid-template-columns: fit-content(6.5rem)
    minmax(5rem, 1fr) auto; }
  .recall .values { flex-direction: column; gap: 0; }
  .confusion td { width: 1.6rem; min-width: 1.6rem; height: 1.6rem; }
  th, td { padding-right: .6rem; }
  td bdi.path { max-width: 6.5rem; }
}
@media (min-width: 64rem) {
  section { display: grid; column-gap: 3.5rem;
    grid-template-columns: 17rem minmax(0, 1fr); }
  section.wide { display: block; }
  .about { position: sticky; top: 1.5rem; align-self: start; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav, summary { display: none; }
  figure, .sample, tr, pre { break-inside: avoid; }
  h2, h3 { break-after: avoid; }
  .scroll { overflow: visible; }
  .panels { grid-template-columns: 1fr 1fr; }
  .about { position: static; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
