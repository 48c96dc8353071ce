"""Validate the language codes of `--language`."""

import difflib
import re

from beambert.pipelines.errors import SourceError
from beambert.pipelines.formats.wikipedia.languages import editions

_NAMES = (
    "aa=Afar|ab=Abkhazian|ae=Avestan|af=Afrikaans|ak=Akan|am=Amharic|an=Aragonese|ar=Arabic|as=Assamese|"
    "av=Avaric|ay=Aymara|az=Azerbaijani|ba=Bashkir|be=Belarusian|bg=Bulgarian|bi=Bislama|bm=Bambara|bn=Bengali|"
    "bo=Tibetan|br=Breton|bs=Bosnian|ca=Catalan|ce=Chechen|ch=Chamorro|co=Corsican|cr=Cree|cs=Czech|"
    "cu=Church Slavic|cv=Chuvash|cy=Welsh|da=Danish|de=German|dv=Dhivehi|dz=Dzongkha|ee=Ewe|el=Greek|en=English|"
    "eo=Esperanto|es=Spanish|et=Estonian|eu=Basque|fa=Persian|ff=Fulah|fi=Finnish|fj=Fijian|fo=Faroese|fr=French|"
    "fy=Western Frisian|ga=Irish|gd=Scottish Gaelic|gl=Galician|gn=Guarani|gu=Gujarati|gv=Manx|ha=Hausa|"
    "he=Hebrew|hi=Hindi|ho=Hiri Motu|hr=Croatian|ht=Haitian|hu=Hungarian|hy=Armenian|hz=Herero|ia=Interlingua|"
    "id=Indonesian|ie=Interlingue|ig=Igbo|ii=Sichuan Yi|ik=Inupiaq|io=Ido|is=Icelandic|it=Italian|iu=Inuktitut|"
    "ja=Japanese|jv=Javanese|ka=Georgian|kg=Kongo|ki=Kikuyu|kj=Kuanyama|kk=Kazakh|kl=Kalaallisut|km=Khmer|"
    "kn=Kannada|ko=Korean|kr=Kanuri|ks=Kashmiri|ku=Kurdish|kv=Komi|kw=Cornish|ky=Kyrgyz|la=Latin|"
    "lb=Luxembourgish|lg=Ganda|li=Limburgan|ln=Lingala|lo=Lao|lt=Lithuanian|lu=Luba-Katanga|lv=Latvian|"
    "mg=Malagasy|mh=Marshallese|mi=Maori|mk=Macedonian|ml=Malayalam|mn=Mongolian|mr=Marathi|ms=Malay|mt=Maltese|"
    "my=Burmese|na=Nauru|nb=Norwegian Bokmal|nd=North Ndebele|ne=Nepali|ng=Ndonga|nl=Dutch|nn=Norwegian Nynorsk|"
    "no=Norwegian|nr=South Ndebele|nv=Navajo|ny=Chichewa|oc=Occitan|oj=Ojibwa|om=Oromo|or=Odia|os=Ossetian|"
    "pa=Punjabi|pi=Pali|pl=Polish|ps=Pashto|pt=Portuguese|qu=Quechua|rm=Romansh|rn=Rundi|ro=Romanian|ru=Russian|"
    "rw=Kinyarwanda|sa=Sanskrit|sc=Sardinian|sd=Sindhi|se=Northern Sami|sg=Sango|sh=Serbo-Croatian|si=Sinhala|"
    "sk=Slovak|sl=Slovenian|sm=Samoan|sn=Shona|so=Somali|sq=Albanian|sr=Serbian|ss=Swati|st=Southern Sotho|"
    "su=Sundanese|sv=Swedish|sw=Swahili|ta=Tamil|te=Telugu|tg=Tajik|th=Thai|ti=Tigrinya|tk=Turkmen|tl=Tagalog|"
    "tn=Tswana|to=Tongan|tr=Turkish|ts=Tsonga|tt=Tatar|tw=Twi|ty=Tahitian|ug=Uyghur|uk=Ukrainian|ur=Urdu|"
    "uz=Uzbek|ve=Venda|vi=Vietnamese|vo=Volapuk|wa=Walloon|wo=Wolof|xh=Xhosa|yi=Yiddish|yo=Yoruba|za=Zhuang|"
    "zh=Chinese|zu=Zulu"
)
# ISO 639-1: two-letter code -> English name.
LANGUAGE_NAMES = dict(pair.split("=") for pair in _NAMES.split("|"))
# Codes of sentencex and py3langid without a Wikipedia edition, languages of India, and special codes (und, mul, zxx).
_OTHERS = """
    aae abs acm aeb aln apc arn arq bcc bci bdr bew bgn bho bqi brx btm cmn cpx doi dtp dua egl fil fit frc fuv gcf gld
    grc gsw gug hbo hke hrx hsn iba jut kea kge khw kik kiu kjh kjp kmr knc kok krl ksw kum liv ljp lki lua lus luz lzz
    mag mnc mul mwr nod npi nyn nyo ory pdt prs qug rgn rsk rup ruq rut sdc sdh ses sgs sjd sli sma sro sty swc tmr tru
    ttj und uzn uzs vmf vmw vot vro wls yrl zlm zxx
"""
_CODES = frozenset([*LANGUAGE_NAMES, *(code.split("-")[0] for code in editions()), *_OTHERS.split()])
_SUBTAGS = re.compile(r"[A-Za-z]{2,9}(?:[-_][A-Za-z0-9]{1,8})*")


def require_language(language: str) -> None:
    """Reject an unknown language code, which would otherwise be segmented by English rules silently.

    Args:
        language: code such as "en", "pt-BR" or "zh_Hans"; only the first subtag is checked.

    Raises:
        SourceError: the code is unknown; the message suggests the nearest language.
    """
    code = re.split("[-_]", language)[0].lower()
    if _SUBTAGS.fullmatch(language) and code in _CODES:
        return
    near = _nearest(code)
    hint = (
        f"did you mean {near} ({LANGUAGE_NAMES[near]})? Use"
        if near
        else "use a code such as en, de, hi, ja or pt-BR, or"
    )
    raise SourceError(
        f"invalid --language {language}: not a known ISO 639 code; {hint} und to segment any language by the rules "
        "of English"
    )


def _nearest(word: str) -> str | None:
    """Return the code of the language with the most similar English name, or None."""
    by_name = {name.lower(): code for code, name in LANGUAGE_NAMES.items()}
    named = sorted(name for name in by_name if len(word) > 2 and name.startswith(word[:9]))
    close = named or difflib.get_close_matches(word, by_name, n=1, cutoff=0.75)
    return by_name[close[0]] if close else None
