"""How a report looks: one column of text, tables with thin rules, and the same on paper."""

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
       color: #1c2430; background: #fff; max-width: 1060px; margin: 2.5rem auto; padding: 0 1.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid #d7dde4; }
p { max-width: 46rem; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .95rem; }
th, td { padding: .42rem .7rem; text-align: right; vertical-align: bottom; border-bottom: 1px solid #e6eaee; }
th { font-weight: 600; color: #4a5563; border-bottom: 2px solid #c3cbd4; }
th:first-child, td:first-child { text-align: left; white-space: nowrap; }
td.words { text-align: left; }
.caption { color: #4a5563; font-size: .92rem; }
pre { background: #f5f7f9; padding: .8rem 1rem; overflow-x: auto; font-size: .88rem; line-height: 1.45;
      border-radius: 4px; white-space: pre-wrap; }
footer { margin-top: 2.5rem; color: #66717e; font-size: .88rem; }
@media print {
  body { margin: 0; max-width: none; font-size: 11pt; }
  th, td { padding: .3rem .4rem; }
  h2, .figure, table, pre { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
