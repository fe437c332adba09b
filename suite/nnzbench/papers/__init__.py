"""The papers whose tables and figures are redrawn, a module or a package of modules each.

An experiment is a table of problems (`datasets/problems/<name>.csv`), a line of `datasets/experiments.csv`, and a
function of its name in a module of its paper, which makes its page; without one it has the generic page. Numbers to
draw beside are in `datasets/published/`.
"""
