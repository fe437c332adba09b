"""The papers whose tables and figures are redrawn, one package each."""
