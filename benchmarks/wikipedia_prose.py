"""Return the prose of an article that a reader sees, by mwparserfromhell (MIT), which beambert does not use.

It shares no code with the extractors: it has another parser and another definition of prose. It expects every parameter
of an unknown template to be visible.
"""

import re

WORD = re.compile(r"\w+")

HIDDEN_TAGS = (
    "ref", "references", "math", "chem", "ce", "gallery", "timeline", "imagemap", "score", "source", "syntaxhighlight",
    "pre", "table", "graph", "mapframe",
)  # fmt: skip
HIDDEN_SECTIONS = (
    "see also", "references", "external links", "further reading", "notes", "bibliography", "sources", "footnotes",
    "notes and references", "references and notes", "citations", "works cited", "explanatory notes",
    "general references", "references and sources", "gallery", "notes and citations", "sources and references",
    "endnotes", "primary sources", "secondary sources", "selected bibliography",
    "bibliography and further reading", "references and further reading",
)  # fmt: skip
# Notes and tags for editors: superscript or hidden.
HIDDEN_TEMPLATES = re.compile(
    r"(sfn|sfnp|sfnm|snf|harv.*|rp|r|ref|refn|efn.*|notetag|note|ref label|cref2|cref|cite.*|citation.*|fact|cn|qn"
    r"|clarify|when"
    r"|who|which|why|where|by whom|according to whom|whom|who says|.*needed|.*inline|dubious.*|disputed.*|vague"
    r"|verify.*|failed.*"
    r"|full|better source|page number.*|unreliable.*|update.*|refimprove|expand.*|explain|or|pov.*|weasel.*"
    r"|editorial.*|anchor"
    r"|clear|-|toc.*|use .*|main.*|see also|further.*|redirect.*|about|other.*|for|short desc.*|pp.*|coord|audio"
    r"|listen|flagdeco"
    r"|flagicon|use|infobox.*|image.*|multiple image|center|legend.*|sister.*|portal.*|wik.* .*|.*map|inflation.fn"
    r"|qref|"
    r"bots|good article|featured article|not verified.*|quote without.*|unsourced.*|overly.*|tone.*|medical.*|isbn"
    r"|oclc|doi"
    r"|gbooks|page needed|css.*|hatnote|distinguish.*|details|details3|#.*|dead link|webarchive|div col.*|colend"
    r"|col-.*|refn.*|small.*end)",
    re.IGNORECASE,
)
CHARACTERS = {
    "'s": "s", "currentyear": "2022", "nbsp": " ", "nbs": " ", "snd": " ", "mdash": " ", "ndash": " ",
    "spaces": " ", "shy": "",
    "extinct": " ", "eqm": "", "sic": "sic", "=": " ", "'": "'", "!": " ", "en dash": " ", "mdashb": " ",
    "spaced ndash": " ",
}  # fmt: skip
PREFIXES = ("file:", "image:", "category:")
LABELS = re.compile(r"lang-(.*)", re.IGNORECASE)
LOST = " lostword "


def template_words(template, visible) -> str:
    """Return the words of a template that are visible within prose."""
    name = str(template.name).strip().lower().replace("_", " ")
    if name in CHARACTERS:
        return CHARACTERS[name]
    if HIDDEN_TEMPLATES.fullmatch(name):
        return ""
    shown = {str(p.name).strip(): visible(p.value).strip() for p in template.params}
    positional = [value for key, value in shown.items() if key.isdigit()]
    first = positional[0] if positional else ""
    if name in ("convert", "cvt"):
        # "5 kilometres (3.1 mi)": of the conversion at least a number and a unit.
        words = [value for value in positional[:-1] if not value.startswith("abbr")]
        return " ".join(words or positional) + LOST + LOST
    if name in ("lang", "rtl-lang", "color", "font color"):
        return positional[1] if len(positional) > 1 else shown.get("text", "")
    if name in ("transl", "transliteration", "wikt-lang"):
        return positional[-1] if positional else ""
    if LABELS.fullmatch(name):
        return "Language: " + " ".join(positional) if shown.get("label") != "none" else " ".join(positional)
    if name.startswith("ipac-"):
        return "".join(
            value for value in positional if value.lower() not in ("us", "uk", "lang", "pron", "en-us", "also")
        )
    if name.startswith("ipa-") or name in ("abbr", "tooltip", "ill", "interlanguage link", "pop density", "inflation"):
        return shown.get("lt") or first
    if name in ("chem", "mp", "mpl"):
        return "".join(positional)
    if name in ("quote", "blockquote", "cquote", "quotation"):
        return "\n\n" + (shown.get("text") or shown.get("quote") or first) + "\n\n"
    if name in ("as of", "asof"):
        return shown.get("alt") or "as of " + " ".join(positional)
    if name in ("uss", "hms", "rms", "mv"):
        return ("" if positional[-1:] == ["2"] else name + " ") + first
    return " ".join(positional)


def visible_paragraphs(wikitext: str) -> list[str]:
    """Return the visible lines of prose, without headings, lists, tables, captions, notes and sections of sources.

    Indented lines count from ten words.
    """
    import mwparserfromhell
    from mwparserfromhell import nodes

    def text_of(code, inline: bool = True) -> str:
        parts = []
        siblings = code.nodes
        for place, node in enumerate(siblings):
            if isinstance(node, nodes.Text):
                parts.append(str(node))
            elif isinstance(node, nodes.Wikilink):
                title = str(node.title)
                if title.strip().lower().startswith(PREFIXES) or re.match(r"[a-z]{2}:[A-Z]", title):
                    continue
                parts.append(text_of(node.text) if node.text else title.lstrip(":"))
            elif isinstance(node, nodes.ExternalLink):
                parts.append(text_of(node.title) if node.title else "" if node.brackets else str(node.url))
            elif isinstance(node, nodes.HTMLEntity):
                parts.append(node.normalize())
            elif isinstance(node, nodes.Heading):
                parts.append(f"\n\0{node.level}{text_of(node.title)}\n")
            elif isinstance(node, nodes.Tag):
                name = str(node.tag).strip().lower()
                if node.wiki_markup and name in ("li", "dd", "dt"):
                    parts.append("\1" if name != "dd" else "\2")
                elif name in HIDDEN_TAGS:
                    continue
                elif name in ("blockquote", "div", "p", "center", "poem"):
                    parts.append("\n" + text_of(node.contents) + "\n")
                elif name == "br":
                    parts.append(" ")
                elif node.contents is not None:
                    parts.append(text_of(node.contents))
            elif isinstance(node, nodes.Template):
                before = str(siblings[place - 1]) if place else "\n"
                after = str(siblings[place + 1]) if place + 1 < len(siblings) else "\n"
                alone = before.endswith("\n") and after.startswith("\n") and inline
                name = str(node.name).strip().lower()
                if not alone or name in ("quote", "blockquote", "cquote", "quotation"):
                    parts.append(template_words(node, text_of))
        return "".join(parts)

    code = mwparserfromhell.parse(wikitext, skip_style_tags=True)
    paragraphs = []
    hidden = 0
    for line in text_of(code).split("\n"):
        if line.startswith("\0"):
            level = int(line[1])
            if not hidden or level <= hidden:
                hidden = level if line[2:].strip().replace("''", "").lower() in HIDDEN_SECTIONS else 0
        elif hidden or not line.strip() or line[0] in " \1|!*#;":
            continue
        elif line[0] in "\2:":
            text = line.strip("\2: ")
            if not text.startswith("\1") and len(WORD.findall(text)) >= 10:
                paragraphs.append(text)
        else:
            paragraphs.append(line)
    return paragraphs
