"""The benchmarks behind docs/benchmarks.md: `make benchmarks` measures and writes the page.

`python -m bench.benchmarks` measures everything on this machine and renders; `render` renders again from the numbers
in docs/evidence/; `gpu` measures what runs on an accelerator. Other frameworks run in virtual environments of their
own, in `.benchmarks/`.
"""
