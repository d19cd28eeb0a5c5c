"""The page: sections in their order, in one self-contained HTML file."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

import supcon_tf
from supcon_tf.reports import markup, style

# The browser itself then refuses every request and every script.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page, or the sentence that stands for it.

    Attributes:
      anchor: its address on the page.
      title: a few words, plain text.
      explanation: one or two sentences, what it shows and how to read it, HTML.
      body: the figures and tables, HTML; "" where there is nothing to show.
      absent: what is not shown and which command makes it, HTML; "" for
        nothing.
    """

    anchor: str
    title: str
    explanation: str = ""
    body: str = ""
    absent: str = ""


def render(
    kind: str, title: str, introduction: str, sections: Sequence[Section]
) -> str:
    """The whole page.

    Args:
      kind: what the page is, above the title, plain text.
      title: plain text.
      introduction: stands above the list of contents, HTML.
      sections: those without a body are named at the end.
    """
    shown = [section for section in sections if section.body]
    links = "".join(
        f'<a href="#{section.anchor}">{markup.escape(section.title)}</a>'
        for section in shown
    )
    body = "".join(map(_section, shown)) + _left_out(sections)
    version = supcon_tf.__version__
    document = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="supcon_tf {version}">
<title>{markup.escape(f"{title}: {kind.lower()}")}</title>
<link rel="icon" href="data:,">
<style>{style.CSS}</style>
</head>
<body>
<header>
<p class="kind">{markup.escape(kind)}</p>
<h1>{markup.escape(title)}</h1>
{introduction}
<nav aria-label="Contents">{links}</nav>
</header>
<main>
{body}
</main>
<footer>Written by supcon_tf {version} from what lies in the run directory. \
This page needs no network.</footer>
</body>
</html>
"""
    return _with_unique_ids(document)


def _section(section: Section) -> str:
    """A section with something to show."""
    absent = f'<p class="quiet">{section.absent}</p>' if section.absent else ""
    return (
        f'<section id="{section.anchor}"><div class="about">'
        f"<h2>{markup.escape(section.title)}</h2>"
        f'<p>{section.explanation}</p></div><div class="shown">'
        f"{section.body}{absent}</div></section>\n"
    )


def _left_out(sections: Sequence[Section]) -> str:
    """A sentence for all sections that one command fills."""
    titles: dict[str, list[str]] = {}
    for section in sections:
        if section.absent and not section.body:
            titles.setdefault(section.absent, []).append(section.title)
    if not titles:
        return ""
    sentences = [
        f'<p class="quiet"><b>{markup.escape(", ".join(x))}.</b> {absent}</p>'
        for absent, x in titles.items()
    ]
    return (
        '<section id="left_out"><div class="about"><h2>Not in this report'
        "</h2><p>What has not been made yet, and the command that makes it."
        f'</p></div><div class="shown">{"".join(sentences)}</div></section>'
    )


def _with_unique_ids(document: str) -> str:
    """Ids inside a figure get its number: the same marks have the same id."""
    numbers = itertools.count(1)

    def renamed(match: re.Match) -> str:
        prefix = f"f{next(numbers)}-"
        return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", match[0])

    return re.sub(
        r'<svg class="figure".*?</svg>', renamed, document, flags=re.DOTALL
    )
