"""The style sheet of all reports, for light and dark mode, phone, desktop and print."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfbf9; --card: #ffffff; --ink: #1c1d1f; --soft: #5c6068; --rule: #dcdcd6; --grid: #ececE6;
  --bar: #3b6ea8; --outline: #c2571a; --warn: #8a4b00; --warn-page: #fff4dc; --fine: #1d6b3a;
  --mask: #ffe58a; --other: #ffc4b5; --same: #bfe8c4; --a: #3b6ea8; --b: #8c5aa8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #16171a; --card: #1f2125; --ink: #e8e8e4; --soft: #a2a6ad; --rule: #383b41; --grid: #2b2e33;
    --bar: #6f9fd8; --outline: #f09a5f; --warn: #ffcf7a; --warn-page: #33290f; --fine: #7fd39a;
    --mask: #6a5600; --other: #7a2f1c; --same: #1f5a2b; --a: #6f9fd8; --b: #c194dd;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 70rem; padding: 1.25rem 1rem 4rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.5rem 0 .35rem; }
p { margin: .4rem 0; max-width: 46rem; }
a { color: var(--bar); }
.soft { color: var(--soft); }
nav { margin: .75rem 0 1.25rem; display: flex; flex-wrap: wrap; gap: .25rem 1rem; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0;
  padding: 0;
}
.tiles div { background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .6rem .75rem; }
.tiles dt { color: var(--soft); font-size: .82rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3; font-variant-numeric: tabular-nums; }
.warnings { list-style: none; padding: 0; margin: .75rem 0; }
.warnings li {
  background: var(--warn-page); color: var(--warn); border-left: .3rem solid var(--warn); border-radius: .25rem;
  padding: .5rem .75rem; margin: .5rem 0;
}
.fine { color: var(--fine); }
.figures {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem;
  margin: 1rem 0;
}
figure {
  margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: .5rem;
  padding: .6rem .6rem .2rem; max-width: 34rem;
}
figcaption { font-size: .88rem; color: var(--soft); }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 11px; font-family: inherit; }
svg .label { fill: var(--ink); }
.axis { stroke: var(--soft); stroke-width: 1; fill: none; }
.grid { stroke: var(--grid); stroke-width: 1; fill: none; }
.bar { fill: var(--bar); }
.outline { stroke: var(--outline); stroke-width: 1.6; fill: none; }
.line { stroke: var(--bar); stroke-width: 2; fill: none; }
.band { fill: var(--bar); opacity: .25; }
.dot { fill: var(--outline); }
.hover { fill: transparent; }
.hover:hover { fill: var(--ink); opacity: .08; }
.legend { margin-left: .6rem; white-space: nowrap; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .3rem; vertical-align: -.08rem; }
.bar-mark { background: var(--bar); }
.outline-mark { border: 2px solid var(--outline); }
.table { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td {
  text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--rule); vertical-align: top;
}
th { color: var(--soft); font-weight: 500; overflow-wrap: normal; }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
th:first-child, td:first-child { min-width: 7rem; }
.tokens {
  display: flex; flex-wrap: wrap; gap: .3rem .5rem; padding: 0; margin: .5rem 0; list-style: none;
  font-size: .9rem;
}
.tokens li { background: var(--card); border: 1px solid var(--rule); border-radius: .3rem; padding: 0 .4rem; }
.sample {
  background: var(--card); border: 1px solid var(--rule); border-radius: .5rem; padding: .6rem .8rem;
  margin: .75rem 0;
}
.sample p { max-width: none; margin: .35rem 0 0; }
.sample .a { border-left: .25rem solid var(--a); padding-left: .6rem; }
.sample .b { border-left: .25rem solid var(--b); padding-left: .6rem; }
.tag {
  display: inline-block; border: 1px solid var(--rule); border-radius: .3rem; padding: 0 .4rem;
  margin-right: .5rem; font-weight: 600;
}
mark { color: inherit; border-radius: .2rem; padding: 0 .15rem; }
mark.mask { background: var(--mask); }
mark.other { background: var(--other); }
mark.same { background: var(--same); }
mark s { opacity: .75; }
summary { cursor: pointer; color: var(--bar); }
:focus-visible { outline: 2px solid var(--outline); outline-offset: 2px; }
@media print {
  body { max-width: none; font-size: 10pt; background: none; }
  nav { display: none; }
  figure, .sample, tr, .tiles div { break-inside: avoid; }
}
"""
