"""What mkdocs.yml can't say: the navigation has all result pages, and beside them reports/index.html, drawn here."""

import logging
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mkdocs.structure.files import File, InclusionLevel

from nnzbench.site.build import draw_index

log = logging.getLogger("mkdocs.hooks.site")
INDEX = "reports/index.html"
SHOWN_AS = "reports/explore.html"
"""Where the site has reports/index.html: reports/README.md becomes the index of that folder."""


def on_config(config):
    """Adds the result pages, a section for each GPU and each comparison; the tables of long pages are linked there."""
    reports = Path(config.docs_dir, "reports")
    sections = {}
    for page in sorted(reports.glob("**/*.md")):
        first, *rest = page.relative_to(reports).parts
        if rest and page.name != "summary.md" and not page.stem.endswith("-tables"):
            sections.setdefault(first, []).append(f"reports/{first}/{'/'.join(rest)}")
    alone = [pages[0] for pages in sections.values() if len(pages) == 1]
    several = [{name: pages} for name, pages in sections.items() if len(pages) > 1]
    config.nav.insert(1, {"Results": ["reports/README.md", *several, *alone]})
    return config


def on_files(files, config):
    """Draws index.html, which git does not keep, and adds it under its other name."""
    draw_index(Path(config.docs_dir, "reports").resolve())
    made = File(INDEX, config.docs_dir, config.site_dir, config.use_directory_urls, dest_uri=SHOWN_AS)
    made.inclusion = InclusionLevel.INCLUDED
    files.append(made)
    return files


def on_page_markdown(markdown, page, **_):
    """Lets Markdown within <details> be Markdown, as on a code host; READMEs that name index.html link it here."""
    if page.file.src_uri in ("README.md", "reports/README.md"):
        markdown = re.sub(r"`((?:reports/)?index\.html)`", r"[\1](\1)", markdown)
    return markdown.replace("<details>", '<details markdown="1">')


def on_post_build(config):
    """Leads the links of index.html to pages of the site; then every link in a page's HTML must lead to a file."""
    root = Path(config.site_dir)
    index = root / SHOWN_AS
    text = re.sub(r"/(?:README\.md|(\w+)\.md)(?=[\"`#])", _page, index.read_text(encoding="utf-8"))
    index.write_text(text, encoding="utf-8")
    for page in sorted(root.glob("**/*.html")):
        for link in set(re.findall(r'(?:href|src)="([^"#?]+)', page.read_text(encoding="utf-8"))):
            to = page.parent / unquote(link) if not link.startswith("/") else root / link[1:]
            if not urlsplit(link).scheme and not (to.is_file() or (to / "index.html").is_file()):
                log.warning("%s: no %s", page.relative_to(root), link)


def _page(link):
    return f"/{link[1]}/" if link[1] else "/"
