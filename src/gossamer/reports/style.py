"""How a report looks, on a telephone, on a screen, in the dark and on paper."""

STYLE = """
:root { color-scheme: light; --page: #fff; --ink: #1c2430; --quiet: #4a5563; --rule: #d7dde4; --box: #f3f5f8;
        --grid: #e3e8ee; --shade: #0000002b; --good: #1b7f5c; --bad: #b3263a; --open: #8a6100; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --page: #14181d; --ink: #e3e8ee; --quiet: #a9b3bf; --rule: #3a434e; --box: #1e242b;
          --grid: #2b333c; --shade: #ffffff38; --good: #5cc7a0; --bad: #f0808c; --open: #dfb04a; }
}
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
       color: var(--ink); background: var(--page); max-width: 66rem; margin: 2.5rem auto; padding: 0 1.5rem;
       overflow-wrap: break-word; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 2.4rem 0 .7rem; padding-bottom: .25rem;
     border-bottom: 1px solid var(--rule); }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
            font-size: .88em; background: var(--box); border-radius: 4px; }
code { padding: .1em .3em; display: inline-block; max-width: 100%; line-height: 1.3; }
pre { padding: .8rem 1rem; line-height: 1.45; white-space: pre-wrap; }
.readers { border-left: 4px solid var(--open); padding: .4rem .9rem; background: var(--box); }
.caption, figcaption, .legend, .scale { color: var(--quiet); font-size: .92rem; }
.scroll { overflow-x: auto; margin: .6rem 0; background:  /* a shade at the edge behind which there is more */
    linear-gradient(90deg, var(--page) 40%, transparent) left / 2.4rem 100% no-repeat local,
    linear-gradient(270deg, var(--page) 40%, transparent) right / 2.4rem 100% no-repeat local,
    linear-gradient(90deg, var(--shade), transparent) left / .9rem 100% no-repeat scroll,
    linear-gradient(270deg, var(--shade), transparent) right / .9rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .94rem; }
th, td { padding: .42rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--quiet); vertical-align: bottom; border-bottom-width: 2px; }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
td.phrase { min-width: 9rem; }
td.words { min-width: 15rem; }
td.text { min-width: 24rem; }
td.good, td.bad, td.open, td.quiet { font-weight: 600; white-space: nowrap; }
td.good { color: var(--good); } td.bad { color: var(--bad); } td.open { color: var(--open); }
td.quiet { color: var(--quiet); }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.2rem 1.6rem; }
.panels.small { grid-template-columns: repeat(auto-fit, minmax(min(100%, 14rem), 1fr)); }
.panel { margin: 0; min-width: 0; max-width: 46rem; }
.plot { width: 100%; }
.small .panel { max-width: 24rem; }
figcaption { text-align: center; margin-bottom: .2rem; }
.panel .xtitle, .panel .ytitle, .panel .xtick text, .panel .ytick text { fill: var(--ink) !important; }
.panel .gridlayer path, .panel .zerolinelayer path { stroke: var(--grid) !important; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; max-width: none; }
.legend i { display: inline-block; width: 1.8rem; vertical-align: middle; margin-right: .5rem; border-top: 3px solid; }
.scale i { display: inline-block; width: 7rem; height: .8rem; vertical-align: middle; margin: 0 .5rem;
           border: 1px solid var(--rule); }
.legend i, .scale i { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
footer { margin-top: 2.5rem; color: var(--quiet); font-size: .88rem; }
@media (max-width: 560px) {
  body { margin: 1.2rem auto; padding: 0 1rem; }
  h1 { font-size: 1.5rem; }
  th, td { padding: .4rem .6rem; }
}
@page { margin: 15mm; }
@media print {
  body { margin: 0; padding: 0; max-width: none; font-size: 10.5pt; }
  table { font-size: 9pt; }
  th, td { padding: .25rem .4rem; }
  td.phrase, td.words, td.text { min-width: 0; }
  .scroll { overflow: visible; background: none; }
  .panels, .panels.small { grid-template-columns: 1fr 1fr; }
  .panel, tr, pre, .readers { break-inside: avoid; }
  h1, h2, h3, figcaption, thead, tr:first-child { break-after: avoid; }
}
"""

SCRIPT = """
const config = { displayModeBar: false, responsive: true };
const plots = document.querySelectorAll(".plot");
const change = (layout) => plots.forEach((plot) => Plotly.relayout(plot, layout));
plots.forEach((plot) => {
  const { data, layout } = JSON.parse(plot.nextElementSibling.textContent);
  Plotly.newPlot(plot, data, layout, config);
});
if (matchMedia("(pointer: coarse)").matches) change({ dragmode: false });
addEventListener("beforeprint", () => change({ width: 315 }));
addEventListener("afterprint", () => change({ width: null }));
"""
"""Draws; lets a finger on a figure scroll the page; gives figures on paper the width of a column."""
