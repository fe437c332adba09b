"""Records to figures, tables and pages. Works from committed files alone and never imports a GPU library."""
