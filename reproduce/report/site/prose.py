"""Docstrings as HTML: paragraphs, lists, indented blocks, ``code`` and *emphasis*."""

from __future__ import annotations

import inspect
import re

from markupsafe import Markup, escape

_ITEM = re.compile(r"(?:\d+\.|-)\s+")
_OPTION = re.compile(r"(\w+(?:, \w+)*): (.+)")


def inline(text: str) -> Markup:
    """One run of text, with code and emphasis."""
    safe = str(escape(text))
    safe = re.sub(r"``(.+?)``|`(.+?)`", lambda m: f"<code>{m[1] or m[2]}</code>", safe)
    return Markup(re.sub(r"(?<![\w*])\*(\w[^*]*?)\*(?![\w*])", r"<em>\1</em>", safe))


def html(text: str | None) -> Markup:
    """A whole docstring; indented blocks keep their lines, as equations need it."""
    return Markup("\n").join(_block(block) for block in re.split(r"\n\s*\n", inspect.cleandoc(text or "")) if block)


def _block(block: str) -> Markup:
    lines = block.splitlines()
    if all(line.startswith("    ") for line in lines):
        return Markup('<pre class="equations" tabindex="0">{}</pre>').format(inspect.cleandoc(block))
    if _ITEM.match(lines[0]):
        kind = "ul" if lines[0].startswith("-") else "ol"
        items = re.split(r"\n(?=(?:\d+\.|-)\s)", block)
        inner = Markup("").join(Markup("<li>{}</li>").format(inline(_joined(_ITEM.sub("", i, 1)))) for i in items)
        return Markup("<{0}>{1}</{0}>").format(Markup(kind), inner)
    return Markup("<p>{}</p>").format(inline(_joined(block)))


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


def option_reasons(*docstrings: str | None) -> dict[str, str]:
    """What docstrings say about options, from lines such as ``delta: 0.5^(1/L), the paper's value.``"""
    found: dict[str, str] = {}
    for docstring in docstrings:
        names: list[str] = []
        for line in inspect.cleandoc(docstring or "").splitlines():
            if match := _OPTION.fullmatch(line):
                names = match[1].split(", ")
                found.update(dict.fromkeys(names, match[2]))
            elif line.startswith(" ") and names:
                found.update({name: f"{found[name]} {line.strip()}" for name in names})
            else:
                names = []
    return found


def without_options(docstring: str | None) -> str:
    """The docstring without the lines that ``option_reasons`` reads and without the heading above them."""
    kept, is_option = [], False
    for line in inspect.cleandoc(docstring or "").splitlines():
        is_option = bool(_OPTION.fullmatch(line)) or (is_option and line.startswith(" "))
        if not is_option:
            kept.append(re.sub(r"\s*Options[^:]*:$", "", line))
    return "\n".join(kept)
