"""The papers whose tables and figures are redrawn, a module or a package of modules each.

An experiment is a table of problems (`datasets/problems/<name>.csv`), an `Experiment` in a module of its paper, and the
function of its name beside it, which makes its page; without one it has the generic page. A new paper is a module that
`catalogue` lists. Numbers to draw beside are in `datasets/published/`.
"""
