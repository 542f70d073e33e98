"""Words on each page of a site that was built: `python docs/words.py docs/_build/html`.

Words are what spaces part for a reader, so that `model.predict_y(X)` is one: the tags that colour
its pieces part nothing. Prose is what is left without code, tables, formulas and signatures.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

ARTICLE = re.compile(r"<article[^>]*>(.*?)</article>", re.DOTALL)
NO_WORDS = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL)
NO_PROSE = re.compile(
    r'<(pre|table|dt)\b.*?</\1>|<(div|span) class="math.*?</\2>', re.DOTALL
)
WITHIN_LINES = re.compile(
    r"</?(span|a|em|strong|code|b|i|u|s|sub|sup|abbr|cite|small)\b[^>]*>"
)
MADE = ("_modules", "_static", "genindex", "py-modindex", "search")
"""Pages that Sphinx makes of nothing."""


def words(text: str) -> int:
    """Words of HTML, without its tags."""
    return len(
        html.unescape(re.sub(r"<[^>]+>", " ", WITHIN_LINES.sub("", text))).split()
    )


def counts(site: Path) -> dict[str, tuple[int, int]]:
    """All words and those of prose, by page."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        page = path.relative_to(site).as_posix()
        article = ARTICLE.search(path.read_text(encoding="utf-8"))
        if article and not page.startswith(MADE):
            text = NO_WORDS.sub("", article[1])
            found[page] = words(text), words(NO_PROSE.sub("", text))
    return found


def main(site: Path) -> None:
    """Print the pages with the most prose first, and the sums of the parts of the site."""
    pages = counts(site)
    for page, (every, prose) in sorted(pages.items(), key=lambda item: -item[1][1]):
        print(f"{every:7d} {prose:7d}  {page}")
    for part in sorted({page.rpartition("/")[0] for page in pages}):
        inside = [two for page, two in pages.items() if page.rpartition("/")[0] == part]
        print(
            *map(sum, zip(*inside)), len(inside), "pages of", part or "the first level"
        )
    print(*map(sum, zip(*pages.values())), "words in all, and of prose")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
