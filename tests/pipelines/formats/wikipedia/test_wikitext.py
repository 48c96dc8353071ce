"""Tests of wikitext to paragraphs: small cases, paragraphs of real pages, and pages built to take excessive time."""

import bz2
import contextlib
import html
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beambert.pipelines.formats.wikipedia import templates
from beambert.pipelines.formats.wikipedia.wikitext import MAX_CHARACTERS, MAX_NESTING, TooComplex, to_paragraphs
from tests.conftest import with_slow

# The words a reader sees in place of a template, in English.
TEMPLATES = {
    "{{lang|grc|ἀναρχία}}": "ἀναρχία",
    "{{Lang|fr|text=mot}}": "mot",
    "{{lang-el|Αιγαίο|Aigaío}}": "Greek: Αιγαίο, romanized: Aigaío",
    "{{lang-he|{{lang|he|הֶבֶל}}|label=none}}": "הֶבֶל",
    "{{langx|ru|космонавт|lit=sailor}}": "Russian: космонавт, lit. 'sailor'",
    "{{convert|5|km|mi}}": "5 km",
    "{{convert|1300|sqmi|km2|abbr=on}}": "1,300 sq mi",
    "{{cvt|1300|m|comma=off}}": "1300 m",
    "{{convert|5|to|10|C|F}}": "5 to 10 °C",
    "{{convert|2|-|3.5|m}}": "2–3.5 m",
    "{{convert|6|ft|2|in|m}}": "6 ft 2 in",
    "{{convert|30|x|40|ft}}": "30 × 40 ft",
    "{{nowrap|Pope [[Clement IV]]}}": "Pope Clement IV",
    "{{nobr|a b}}": "a b",
    "{{circa|3000}}": "c. 3000",
    "{{circa|1150|1160}}": "c. 1150 – c. 1160",
    "{{IPA|/aj/}}": "/aj/",
    "{{IPA|de|ˈalbɛʁt}}": "[ˈalbɛʁt]",
    "{{IPA-el|akʰil|pron}}": "pronounced [akʰil]",
    "{{IPAc-en|US|ə|ˈ|d|oʊ|b|i|audio=a.ogg}}": "/əˈdoʊbi/",
    "{{respell|ASS|kee}}": "ASS-kee",
    "{{transl|ja|[[kenjutsu]]}}": "kenjutsu",
    "{{transliteration|ar|ALA|jīm}}": "jīm",
    "{{Nihongo|'''Aikido'''|合気道|Aikidō|lead=yes}}": "Aikido (合気道, Aikidō)",
    "{{zh|t=臺灣|p=Táiwān}}": "traditional Chinese: 臺灣; pinyin: Táiwān",
    "{{abbr|cf.|compare}}": "cf.",
    "{{small|tiny}}": "tiny",
    "{{math|1=''Q'' = ''I'' ''t''}}": "Q = I t",
    "{{frac|2|1|3}}": "2 1/3",
    "{{sfrac|3}}": "1/3",
    "{{val|6.241|e=18|u=C}}": "6.241×1018 C",
    "{{val|1234.5|0.1}}": "1,234.5±0.1",
    "{{chem|NH|4|+}}": "NH4+",
    "{{As of|2014|1|31|df=y}}": "As of 31 January 2014",
    "{{as of|2014|lc=y}}": "as of 2014",
    "{{birth date|1950|1|2}}": "January 2, 1950",
    "{{US$|2 billion}}": "US$2 billion",
    "{{ill|Charles Laplante|fr}}": "Charles Laplante",
    "{{ill|de|Gymnasium Ernestinum|lt=the school}}": "the school",
    "{{USS|Hornet|CV-12}}": "USS Hornet (CV-12)",
    "{{USS|Hornet|CV-12|6}}": "USS Hornet",
    "{{ship|HMS|Victory|1765|2}}": "Victory",
    "{{sclass|Nimitz|aircraft carrier|1}}": "Nimitz-class aircraft carrier",
    "{{flag|Angola}}": "Angola",
    "{{sic|teh}}": "teh [sic]",
    "{{lc:ABC}}{{uc:d}}{{formatnum:3003}}": "abcD3003",
    "{{'}}s{{snd}}t{{nbsp}}u": "'s – t u",
    "{{coord|13|19|N|169|9|W|type:event}}": "13°19′N 169°9′W",
    "{{PAGENAME}}": "Title",
    "{{{1|given}}}": "given",
    "{{small|a{{!}}b}}": "a|b",
    "{{nowrap|{{small|{{lang|fr|deep}}}}}}": "deep",
    "{{angbr|a}}": "⟨a⟩",
}
# Wikitext that is not part of the prose, and templates whose text depends on the clock.
HIDDEN = [
    "{{citation needed|date=May 2022}}", "{{sfn|Barnes|1995|p=9}}", "{{rp|76}}", "{{efn|A note with words.}}",
    "{{CURRENTYEAR}}",
    "{{Infobox person\n| name = A\n| x = {{nowrap|b}}\n}}", "{{#if:a|b|c}}", "{{age|1950|1|2}}",
    "{{coord|1|N|2|E|display=title}}",
    "<ref>Smith, p. 5</ref>", "<ref name=\"a\" />", "<REF name=a>x [[y]]</REF >", "<!-- a {{ comment -->",
    "<math>x^{{2}}</math>",
    "[[File:A.jpg|thumb|A [[linked]] caption {{nowrap|b}}]]", "[[Image:a.png]]", "[[Category:Dogs]]",
    "[[fr:Chien]]", "__NOTOC__",
    "<gallery>\nA.jpg|b\n</gallery>", "<templatestyles src=\"x\" />", "<nowiki />", "[https://example.org]",
    "( {{efn|a}} )", "( ; , )",
    "<syntaxhighlight lang=c>int x[[1]];</syntaxhighlight>",
]  # fmt: skip


def text(wikitext: str, language: str = "en") -> str:
    return "\n".join(to_paragraphs(wikitext, "Title", language))


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_keep_their_words(template):
    assert text(f"Before {template} after.") == f"Before {TEMPLATES[template]} after."


@pytest.mark.parametrize("hidden", HIDDEN)
def test_markup_outside_the_prose_leaves_no_text(hidden):
    assert text(f"Before {hidden} after.") == "Before after."
    # Empty parentheses after a word stay, as in "main()".
    assert text(f"Before{hidden}.") == ("Before()." if hidden.startswith("(") else "Before.")


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[[dog]]s", "dogs"),
        ("[[dog|the ''dog'']]", "the dog"),
        ("[[2001: A Space Odyssey]]", "2001: A Space Odyssey"),
        ("[[Star Trek: Voyager|Voyager]]", "Voyager"),
        ("[[:Category:Dogs]]", "Category:Dogs"),
        ("[[:fr:Chien|chien]]", "chien"),
        ("[[wikt:dog|dog]]", "dog"),
        ("[[s:The Raven|The Raven]]", "The Raven"),
        ("[[Wikipedia:About|about]]", "about"),
        ("[[a|b {{nowrap|c|d}} e]]", "b c e"),
        ("[https://example.org/a?b=c a site]", "a site"),
        ("[//example.org a site]", "a site"),
        ("[[[dog]]]", "[dog]"),
        ("[[unclosed", "unclosed"),
        ("[1] and [sic]", "[1] and [sic]"),
    ],
)
def test_links(link, shown):
    assert text(f"Before {link} after.") == f"Before {shown} after."


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("It's the '''dog's''' ''life''.", "It's the dog's life."),
        ("l'''Iliade'' est longue.", "l'Iliade est longue."),
        ("l'''Iliade'' est un '''poème'''.", "l'Iliade est un poème."),
        ("'''''a'' b''' ''''c''''", "a b 'c'"),
        ("a&nbsp;b &amp; c &lt;d&gt; &#233; &mdash;", "a b & c <d> é —"),
        ('H<sub>2</sub>O and x<sup>2</sup> <span style="x">in</span><br/>side', "H2O and x2 in side"),
        ("if a <b and c> d", "if a d"),
        ("a < b > c, x<5, <email@example.org>", "a < b > c, x<5, <email@example.org>"),
        ("<nowiki>[[a]] {{b}} '''c''' &amp; <ref></nowiki> d", "[[a]] {{b}} '''c''' & <ref> d"),
        ("a <code>x = 1</code> b", "a x = 1 b"),
        ("Foo (; born 1950) bar (born 1950 ; ) baz (, c), main().", "Foo (born 1950) bar (born 1950) baz (c), main()."),
        ("Foo ({{efn|a}}), bar ({{efn|a}} ; ''x'').", "Foo, bar (x)."),
        ("东京（{{efn|a}}）是首都。", "东京是首都。"),
        ("A {{unclosed template. And more.", "A unclosed template. And more."),
        ("A stray }} and ]] here.", "A stray and here."),
        ("A -{zh-hans:汉语; zh-hant:漢語}- B -{T|x}- C", "A 汉语 B C"),
        ("a <ref>unclosed b", "a unclosed b"),
        ("a <!-- never closed b", "a"),
        ("call __init__ in __FOO_BAR__ Python", "call __init__ in Python"),
    ],
)
def test_inline_markup(wikitext, expected):
    assert text(wikitext) == expected


def test_blocks():
    page = """{{Short description|x}}
{{Infobox
| a = {{convert|1|km}}
| b = [[File:x.jpg]]
}}
'''Lead''' paragraph
goes on.

Second.
== Heading ==
* item [[a]]
# item
; term : definition
: An indented sentence.
: a formula x + y
{| class="wikitable"
! head
|-
| cell {{nowrap|a}} [[b]]
{| nested
| inner
|}
| after nested
|}
After table.
  preformatted a
 code line
----
<blockquote>
Quoted words.
</blockquote>
{{quote|A quotation.|Someone}}
Then <table><tr><td>cell</td></tr></table> rest.
"""
    assert to_paragraphs(page) == [
        "Lead paragraph goes on.", "Second.", "An indented sentence.", "After table.", "Quoted words.",
        "A quotation.", "Then", "rest.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        "<blockquote>Q.</blockquote><ref>x</ref> ", "<ref>x</ref> ", "<!-- c --> ", "<br /> ", "<br><br> ",
        "<nowiki/> ", "<div></div> <ref name=a/>  ", "<span> ", "</div><!-- c --><span> ", "{|\n|a\n|} ",
        "<table><tr><td>a</table><ref>x</ref> ", "[[File:a.png|b]] ", "{{none}} ", "__NOTOC__ ",
    ],
)  # fmt: skip
def test_a_blank_after_removed_markup_does_not_begin_preformatted_text(before):
    text = "The council answered in May."
    for wikitext in (before + text, f"A.\n{before}{text}", f"A.\n\n{before}{text}\n\nB."):
        assert text in " ".join(to_paragraphs(wikitext))
    # A blank at the start of the line of the source does.
    assert to_paragraphs(f"A.\n <ref>x</ref>{text}\nB.") == ["A.", "B."]


def test_a_table_or_template_that_never_closes_costs_its_section_only():
    assert to_paragraphs("Lead.\n{| a\n| cell\n== Next ==\nText.") == ["Lead.", "Text."]
    assert "Text." in to_paragraphs("Lead.\n{{Infobox\n| a = b\n== Next ==\nText.")
    assert to_paragraphs("{{a|\n{| open\n| cell\n}}\nText.") == ["Text."]


@pytest.mark.parametrize(
    ("language", "unwanted", "wanted"),
    [
        ("en", ["See also", "References", "External links", "Further reading"], "History"),
        ("de", ["Siehe auch", "Einzelnachweise", "Weblinks", "Literatur"], "Geschichte"),
        ("fr", ["Voir aussi", "Notes et références", "Liens externes"], "Histoire"),
        ("es", ["Véase también", "Referencias", "Enlaces externos"], "Historia"),
        ("it", ["Voci correlate", "Note", "Collegamenti esterni"], "Storia"),
        ("pt", ["Ver também", "Referências", "Ligações externas"], "História"),
        ("nl", ["Zie ook", "Bronnen", "Externe links"], "Geschiedenis"),
        ("pl", ["Zobacz też", "Przypisy", "Linki zewnętrzne"], "Historia"),
        ("ru", ["См. также", "Примечания", "Ссылки"], "История"),
        ("ja", ["関連項目", "脚注", "外部リンク"], "歴史"),
        ("zh", ["参见", "參考文獻", "外部链接"], "历史"),
        ("sv", ["Se även", "Referenser", "Externa länkar"], "Historia"),
    ],
)
def test_sections_of_links_are_left_out_by_language(language, unwanted, wanted):
    for heading in unwanted:
        page = f"Lead.\n=={heading}==\nSources.\n===Sub===\nMore.\n== {wanted} ==\nKept."
        assert to_paragraphs(page, language=language) == ["Lead.", "Kept."], heading


def test_namespaces_by_language():
    assert text("Der [[Datei:Hund.jpg|mini|Ein Hund]] Hund [[Kategorie:Hund]]", "de") == "Der Hund"
    assert to_paragraphs("a [[Fichero:x.jpg]] b", language="xx", file_prefixes=frozenset({"fichero"})) == ["a b"]


@pytest.mark.parametrize(
    ("language", "template", "shown"),
    [
        ("de", '{{"|Zitat}}', "„Zitat“"),
        ("de", "{{lang-en|word}}", "word"),
        ("fr", "{{unité|5|km}}", "5 km"),
        ("fr", "au {{s|XIX}}", "au XIXe siècle"),
        ("es", "{{unidad|5|km}}", "5 km"),
        ("it", "{{M|5|ul=km}}", "5 km"),
        ("ru", "{{нп5|Имя|Другое}}", "Другое"),
        ("ja", "{{読み仮名|漢字|かんじ}}", "漢字（かんじ）"),
        ("zh", "{{link-en|狗|Dog}}", "狗"),
    ],
)
def test_templates_of_other_editions(language, template, shown):
    assert text(f"a {template} b", language) == f"a {shown} b"


# Written by hand from the wikitext of the two samples: (sample, title, part of a paragraph).
GOLD = [
    ("206", "Achilles", "In Greek mythology, Achilles (/əˈkɪliːz/; Ancient Greek: Ἀχιλλεύς, Akhilleus, pronounced "
    "[akʰilːéu̯s]) was a "
     "Greek hero of the Trojan War and the central character and greatest warrior of Homer's Iliad. His mother was "
     "the nymph "
     "Thetis, and his father, Peleus, was the king of the Myrmidons."),
    ("206", "Apollo 11", "On July 24, the astronauts returned home aboard the Command Module Columbia just before "
    "dawn local time "
     "(16:51 UTC) at 13°19′N 169°9′W, in the Pacific Ocean 2,660 km east of Wake Island, 380 km south of Johnston "
     "Atoll, and 24 km "
     "from the recovery ship, USS Hornet."),
    ("206", "Aruba", "Aruba (/əˈruːbə/ ə-ROO-bə; [aːˈrubaː]) is a constituent country of the Kingdom of the "
    "Netherlands in the "
     "southern Caribbean Sea, located about 1,600 km west of the main part of the Lesser Antilles and 29 km north "
     "of the coast of "
     "Venezuela. It measures 32 km long from its northwestern to its southeastern end and 10 km across at its "
     "widest point."),
    ("206", "Allah", "Allah (/ˈælə, ˈɑːlə, əlˈlɑː/; Arabic: الله Allāh, pronounced [ʔalˤˈlˤɑːh]) is the Arabic word "
    "referring to God "
     "in Abrahamic religions. The word is thought to be derived by contraction from al ilāh, which means \"the "
     "God\", and has "
     "cognates in other Semitic languages, including Elah in Aramaic, ʾĒl in Canaanite and Elohim in Hebrew."),
    ("206", "Aikido", "Aikido (合気道, Aikidō) [a.i.ki.doː] is a modern Japanese martial art developed by Morihei "
    "Ueshiba as a synthesis "
     "of his martial studies, philosophy, and religious beliefs. Aikido is often translated as \"the way of "
     "unifying (with) life "
     "energy\""),
    ("2022", "Abel", "Abel is a Biblical figure in the Book of Genesis within Abrahamic religions. He was the "
    "younger brother of Cain, "
     "and the younger son of Adam and Eve, the first couple in Biblical history."),
    ("2022", "Aegean Sea", "In the South Slavic languages, the Aegean is called White Sea (Bulgarian: Бяло море, "
    "romanized: Byalo more; "
     "Macedonian: Бело море, romanized: Belo more; Serbo-Croatian: Belo more / Бело море)."),
    ("2022", "Apollo", "Apollo (Attic, Ionic, and Homeric Greek: Ἀπόλλων, Apollōn (GEN Ἀπόλλωνος); Doric: Ἀπέλλων, "
    "Apellōn; "
     "Arcadocypriot: Ἀπείλων, Apeilōn; Aeolic: Ἄπλουν, Aploun; Latin: Apollō)"),
    ("2022", "Andorra", "Another theory suggests that Andorra may derive from Arabic: الدارة, romanized: al-darra, "
    "meaning \"the thickly "
     "wooded place\"."),
    ("2022", "Apollo 8", "As they were buffeted by a 10 ft swell, Borman was sick, waiting for the three flotation "
    "balloons to right the "
     "spacecraft. About six minutes after splashdown, the command module was righted into a normal apex-up (Stable "
     "1) orientation by "
     "its inflatable bag uprighting system. The first frogman from aircraft carrier USS Yorktown arrived 43 minutes "
     "after splashdown."),
    ("2022", "Astronaut", "The word is an Anglicization of kosmonavt (Russian: космонавт [kəsmɐˈnaft]). Other "
    "countries of the former "
     "Eastern Bloc use variations of the Russian kosmonavt, such as the Polish: kosmonauta (although Polish also "
     "uses astronauta, and "
     "the two words are considered synonyms)."),
    ("2022", "Anime", "Anime (アニメ, [aɲime]) is a Japanese term for animation. Outside of Japan and in English, "
    "anime refers specifically "
     "to animation produced in Japan."),
    ("2022", "Arabic", "In a non-emphatic environment, the vowel /a/ in the diphthong /aj/ is pronounced [æj] or "
    "[ɛj]: hence سيف sayf "
     "[sajf ~ sæjf ~ sɛjf] 'sword' but صيف ṣayf [sˤɑjf] 'summer'."),
    ("2022", "Alfred Nobel", "Alfred Bernhard Nobel (/noʊˈbɛl/ noh-BEL, [ˈǎlfrɛd nʊˈbɛlː]; 21 October 1833 – 10 "
    "December 1896) was a "
     "Swedish chemist, engineer, inventor, businessman, and philanthropist."),
]  # fmt: skip


@pytest.fixture(scope="module")
def sample_pages(shared_data) -> dict[tuple[str, str], str]:
    """{(sample, title): wikitext} of the sample pages, read by a regular expression."""
    found = {}
    for sample, name in (("206", "enwiki-206-pages.xml.bz2"), ("2022", "enwiki-2022-251-pages-truncated.xml.bz2")):
        dump = bz2.decompress((shared_data / "wiki-dump" / name).read_bytes()).decode()
        for title, source in re.findall(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", dump, re.DOTALL):
            found[sample, title] = html.unescape(source)
    return found


@pytest.mark.parametrize(("sample", "title", "paragraph"), GOLD, ids=lambda value: value[:12])
def test_paragraphs_of_real_pages(sample_pages, sample, title, paragraph):
    paragraphs = to_paragraphs(sample_pages[sample, title], title)
    assert any(paragraph in found for found in paragraphs), [
        found for found in paragraphs if found[:9] == paragraph[:9]
    ]


UNITS = [
    "{{", "[[", "{|\n", "\n{|", "<ref>", "<!--", "'''", "''", "[http://a ", "[http://a b", "-{", "__A", "&", "&#",
    "&#x", "(", "( ;", ";", "== =",
    "{{a|", "[[a|", "{{{", "}}", "]]", "\n|}", "<table>", "<nowiki>", "<ref name=", "<", "<!-", "= ", "\n=", "\n:",
    " ", "\n ", "|", "{{!}}", "_",
    "{{small|a}}", "[[a]]", "{{a}} ", "}}{{", "]][[", "(" * 50 + ")" * 50, "\u00a0;", "<math>", "</ref>",
    "{{convert|1|to|", "'", "__", "[", "[[",
]  # fmt: skip


@pytest.mark.parametrize("characters", with_slow([MAX_CHARACTERS // 32, MAX_CHARACTERS // 4], [MAX_CHARACTERS // 4]))
@pytest.mark.parametrize("unit", UNITS)
def test_no_page_hangs(unit, characters):
    page = (unit * (characters // len(unit) + 1))[:characters]
    start = time.process_time()
    for wikitext in (page, "x" + page, "x (y " + page.replace("\n", " ")):
        with contextlib.suppress(TooComplex):
            to_paragraphs(wikitext)
    assert time.process_time() - start < 6


@pytest.mark.parametrize("bracket", ["{{", "[[", "\n{|", "{{a|b={{c|"])
def test_nesting_is_given_up_at_once(bracket):
    start = time.process_time()
    with pytest.raises(TooComplex):
        to_paragraphs(bracket * 100_000)
    assert time.process_time() - start < 0.5
    with pytest.raises(TooComplex):
        to_paragraphs("a" * (MAX_CHARACTERS + 1))


@pytest.mark.parametrize("inner", ["[[a]]", "{{lc:A}}"])
def test_a_link_or_template_counts_as_a_level(inner):
    assert text("{{lc:" * (MAX_NESTING - 1) + inner + "}}" * (MAX_NESTING - 1)) == "a"
    with pytest.raises(TooComplex):
        to_paragraphs("{{lc:" * MAX_NESTING + inner + "}}" * MAX_NESTING)


def test_braces_and_full_width_brackets_of_templates():
    assert text("{{lc:ABC}}} words.") == "abc words."
    assert text("Text (a ）here.") == "Text (a）here."


def test_nesting_below_the_bound_is_resolved():
    depth = MAX_NESTING - 2
    assert text("{{small|" * depth + "deep" + "}}" * depth) == "deep"


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([*UNITS, "word", "Two words. ", "\n", "\n\n", "a=b", "http://x", "é", "​"]), max_size=40)
)
def test_any_mixture_gives_clean_paragraphs(pieces):
    try:
        paragraphs = to_paragraphs("".join(pieces))
    except TooComplex:
        return
    for paragraph in paragraphs:
        assert paragraph == " ".join(paragraph.split())
        assert re.search(r"\w", paragraph)
        assert not re.search("[\ufdd0-\ufdef]", paragraph)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(
        [
            *sorted(templates._RULES),
            "nowrap",
            '"',
            "unité",
            "sp",
            "読み仮名",
            "script/x",
            "ipa-de",
            "ipac-xx",
            "lang-de",
            "lc:x",
            "formatnum:²",
        ]
    ),
    st.lists(
        st.sampled_from(
            ["", "1", "²", "x", "to", "y", "9" * 5000, "1=a", "2=b", "text=t", "df=y", "-", "a=b=c", "lit=x", "٣"]
        )
    ),
    st.sampled_from(["en", "de", "fr", "ja", "xx"]),
)
def test_no_parameters_break_a_rule(name, parameters, language):
    shown = templates.template_text("|".join([name, *parameters]), "Title", language)
    assert isinstance(shown, str)


@pytest.mark.parametrize("edition", sorted(templates._TABLES))
def test_a_template_of_an_edition_has_one_rule(edition):
    names = [name for group in templates._TABLES[edition].values() for name in group]
    assert sorted(set(names)) == sorted(names)
    assert [" ".join(name.replace("_", " ").lower().split()) for name in names] == names
    if edition == "en":
        assert not templates._RULES.keys() & set(names)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="abcdefgh éß漢字,.", min_size=1))
def test_plain_prose_is_left_as_it_is(prose):
    # A space at the start of a line would make it preformatted. Spaces before commas and periods are removed.
    found = " ".join(to_paragraphs("x" + prose))
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", "x" + prose)
