"""Reports: what a run did, as numbers for tables and as one HTML file that works offline."""

from gossamer.reports.figures import Network, network_of
from gossamer.reports.html import Part, Report, require_plotly
from gossamer.reports.summary import Columns, Summary, Table, summarize, summary_table

__all__ = [
    "Columns",
    "Network",
    "Part",
    "Report",
    "Summary",
    "Table",
    "network_of",
    "require_plotly",
    "summarize",
    "summary_table",
]
