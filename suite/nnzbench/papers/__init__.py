"""The papers whose tables and figures are redrawn, one package each.

An experiment is a table of problems (`datasets/problems/<name>.csv`), a declaration in its paper's `EXPERIMENTS`, and a
module beside it with the `PageSpec` that the declaration names; without one it has the generic page. A new paper is a
package that `catalogue` lists. Numbers to draw beside are in `datasets/published/`.
"""
