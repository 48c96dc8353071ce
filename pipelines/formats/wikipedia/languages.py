"""Define names of Wikipedia's editions: sections without prose, namespaces and disambiguation templates.

Names are lowercase with spaces for underscores. Other editions use the English names, which MediaWiki supports in all
editions, and the namespaces in the head of their dump.
"""

_SECTIONS = {
    "en": "see also|references|external links|further reading|notes|bibliography|sources|footnotes|notes and references"
    "|references and notes|citations|works cited|explanatory notes|general references|references and sources"
    "|notes and citations|sources and references|gallery|endnotes|primary sources|secondary sources|selected "
    "bibliography"
    "|references and further reading|bibliography and further reading|external link",
    "de": "siehe auch|literatur|weblinks|einzelnachweise|anmerkungen|quellen|fußnoten|belege|quellen und literatur"
    "|literatur und quellen|einzelnachweise und anmerkungen|anmerkungen und einzelnachweise|literaturverzeichnis"
    "|galerie|nachweise|referenzen|bibliografie|bibliographie",
    "fr": "voir aussi|liens externes|lien externe|notes et références|références|notes|bibliographie|articles connexes"
    "|annexes|sources|liens internes|galerie|notes et sources|références et notes",
    "es": "véase también|referencias|enlaces externos|bibliografía|notas|notas y referencias|referencias y notas"
    "|fuentes|lecturas adicionales|bibliografía adicional|galería|citas",
    "it": "voci correlate|altri progetti|collegamenti esterni|note|bibliografia|riferimenti|fonti|galleria "
    "d'immagini|annotazioni|note al testo",
    "pt": "ver também|referências|ligações externas|bibliografia|notas|notas e referências|referências e notas"
    "|leitura adicional|leitura complementar|fontes|galeria|links externos",
    "nl": "zie ook|externe links|externe link|externe koppelingen|externe koppeling|bronnen|referenties|literatuur"
    "|noten|voetnoten|bronvermelding|bibliografie|bronnen, noten en/of referenties|galerij",
    "pl": "zobacz też|przypisy|linki zewnętrzne|bibliografia|uwagi|literatura|źródła|galeria",
    "ru": "см. также|примечания|ссылки|литература|источники|библиография|комментарии|сноски|галерея|дополнительная "
    "литература|внешние ссылки",
    "ja": "関連項目|脚注|外部リンク|参考文献|出典|注釈|注|関連文献|関連書籍|ギャラリー|脚注・出典|注釈・出典|参照|文献",
    "zh": "参见|參見|参考文献|參考文獻|外部链接|外部連結|外部鏈接|注释|註釋|注釋|备注|備註|参考资料|參考資料|脚注"
    "|腳註|相关条目|相關條目"
    "|延伸阅读|延伸閱讀|參考|参考|來源|来源|资料来源|資料來源|相關連結|相关链接|書目|扩展阅读|擴展閱讀|註解|注解",
    "sv": "se även|referenser|externa länkar|källor|noter|litteratur|vidare läsning|fotnoter|bibliografi|galleri"
    "|externa källor|tryckta källor|anmärkningar",
    "uk": "див. також|примітки|посилання|література|джерела|галерея|бібліографія|виноски",
    "ca": "vegeu també|referències|enllaços externs|bibliografia|notes|notes i referències|fonts",
    "cs": "související články|reference|odkazy|externí odkazy|literatura|poznámky|galerie|zdroje",
    "da": "se også|referencer|eksterne henvisninger|kilder|noter|litteratur|fodnoter",
    "fi": "katso myös|lähteet|aiheesta muualla|viitteet|kirjallisuutta|kirjallisuus",
    "no": "se også|referanser|eksterne lenker|kilder|litteratur|noter|fotnoter",
    "ko": "같이 보기|각주|외부 링크|참고 문헌|출처|참고문헌|주석",
    "ar": "انظر أيضا|انظر أيضًا|مراجع|المراجع|وصلات خارجية|مصادر|هوامش|روابط خارجية",
    "tr": "ayrıca bakınız|kaynakça|dış bağlantılar|notlar|kaynaklar|konuyla ilgili yayınlar",
}

# Namespaces of files and categories, whose links show no prose. The English names are valid in all editions.
_NAMESPACES = {
    "en": "file|image|category",
    "de": "datei|bild|kategorie",
    "fr": "fichier|image|catégorie",
    "es": "archivo|imagen|categoría",
    "it": "file|immagine|categoria",
    "pt": "ficheiro|imagem|arquivo|categoria",
    "nl": "bestand|afbeelding|categorie",
    "pl": "plik|grafika|kategoria",
    "ru": "файл|изображение|категория",
    "ja": "ファイル|画像|カテゴリ",
    "zh": "文件|档案|檔案|图像|圖像|图片|圖片|分类|分類",
    "sv": "fil|bild|kategori",
}

_DISAMBIGUATION = {
    "en": "disambiguation|disambig|disamb|dab|hndis|geodis|hndab|hn|dbig|disambiguation cleanup|disambig cleanup"
    "|human name disambiguation|human name dab|place name disambiguation|airport disambiguation|airport disambig"
    "|callsigndis|call sign disambiguation|chinese title disambiguation|biology disambiguation|church disambiguation"
    "|caselaw disambiguation|genus disambiguation|hospital disambiguation|letter disambiguation|letter-number "
    "combdisambig"
    "|letter-number combination disambiguation|math disambiguation|mathematical disambiguation|mathdab|mil-unit-dis"
    "|military unit disambiguation|numberdis|number disambiguation|opus disambiguation|phonetics disambiguation"
    "|political disambiguation|road disambiguation|roaddis|school disambiguation|schooldis|species latin name "
    "disambiguation"
    "|species latin name abbreviation disambiguation|station disambiguation|stationdis|synagogue disambiguation"
    "|taxonomic authority disambiguation|taxonomy disambiguation|template disambiguation|wp disambig|shipindex "
    "disambig",
    "de": "begriffsklärung|bks|bkl",
    "fr": "homonymie|homonyme|patronymie|homonymie de personnes|homonymie de titre|homonymie de toponyme"
    "|homonymie de patronyme|homonymie dynastique|paronymie|internationalisation|titres homonymes|toponymie"
    "|personnes homonymes|saints homonymes|patronyme|homonymie de localités|voir homonymie",
    "es": "desambiguación|desambiguacion|desambig|des|disambig|desam",
    "it": "disambigua|disambig",
    "pt": "desambiguação|disambig|desambig|desambiguacao|desambig-ini|desambiguação de topônimos|des",
    "nl": "dp|doorverwijspagina|disambiguation|dp-cognomen|dpintro",
    "pl": "ujednoznacznienie|disambig|strona ujednoznaczniająca|disambigr|ujedn",
    "ru": "неоднозначность|disambig|многозначность|населённые пункты-тёзки|однофамильцы|тёзки|неоднозначность-фамилия",
    "ja": "aimai|曖昧さ回避|disambig|人名の曖昧さ回避|地名の曖昧さ回避|山の曖昧さ回避|駅の曖昧さ回避"
    "|学校名の曖昧さ回避",
    "zh": "disambig|disambiguation|消歧义|消歧義|消歧义页|消歧義頁|disamb|地名消歧义|人名消歧义|人名消歧義"
    "|地名消歧義|dab",
    "sv": "förgrening|gren|disambig|grensida|förgreningssida|namnförgrening|ortnamnsförgrening|trebokstavsförgrening",
    "uk": "disambig|неоднозначність|багатозначність",
    "ca": "desambiguació|disambig",
    "cs": "rozcestník|disambig",
    "ko": "동음이의|disambig|동명이인",
    "ar": "توضيح|disambig",
    "tr": "anlam ayrımı|anlamayrımı|disambig",
    "fi": "täsmennyssivu|disambig",
    "da": "flertydig|disambig",
    "no": "peker|disambig",
}

# A link such as [[fr:Titre]] refers to the same article in another edition and shows no text.
_EDITIONS = """
    aa ab ace ady af ak als alt am ami an ang anp ar arc ary arz as ast atj av avk awa ay az azb ba ban bar bat-
    smg bbc bcl be be-tarask be-x-old bg bh bi bjn blk bm bn bo bpy br bs bug bxr ca cbk-zam cdo ce ceb ch cho
    chr chy ckb co cr crh cs csb cu cv cy da dag de din diq dsb dty dv dz ee el eml en eo es et eu ext fa fat ff
    fi fiu-vro fj fo fon fr frp frr fur fy ga gag gan gcr gd gl glk gn gom gor got gpe gu guc gur guw gv ha hak
    haw he hi hif ho hr hsb ht hu hy hyw hz ia id ie ig ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd
    kbp kcg kg ki kj kk kl km kn ko koi kr krc ks ksh ku kv kw ky la lad lb lbe lez lfn lg li lij lld lmo ln lo
    lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw mo mr mrj ms mt mus mwl my myv mzn
    na nah nan nap nds nds-nl ne new ng nia nl nn no nov nqo nrm nso nv ny oc olo om or os pa pag pam pap pcd
    pcm pdc pfl pi pih pl pms pnb pnt ps pt pwn qu rm rmy rn ro roa-rup roa-tara ru rue rw sa sah sat sc scn sco
    sd se sg sh shi shn shy si simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy te
    tet tg th ti tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi vls vo wa war wo
    wuu xal xh xmf yi yo yue za zea zh zh-classical zh-min-nan zh-yue zu
"""


def _names(table: dict[str, str], language: str) -> frozenset[str]:
    return frozenset(name for key in ("en", language.split("-")[0]) for name in table.get(key, "").split("|") if name)


def editions() -> frozenset[str]:
    """Return the codes of Wikipedia's editions, mostly ISO 639 codes."""
    return frozenset(_EDITIONS.split())


def unwanted_sections(language: str) -> frozenset[str]:
    """Return the headings of sections with sources and links instead of prose."""
    return _names(_SECTIONS, language)


def unwanted_prefixes(language: str) -> frozenset[str]:
    """Return the prefixes of links without prose: files, categories and other editions."""
    return _names(_NAMESPACES, language) | editions()


def disambiguation_templates(language: str) -> frozenset[str]:
    """Return the templates that occur only on disambiguation pages."""
    return _names(_DISAMBIGUATION, language)


# {{lang-ru|...}} shows the name of the language first: names by ISO 639 code, as in the English edition.
_LANGUAGE_NAMES = (
    "af=Afrikaans|ar=Arabic|arc=Imperial Aramaic|az=Azerbaijani|be=Belarusian|ber=Berber|bg=Bulgarian|bn=Bengali"
    "|bs=Bosnian|ca=Catalan|cs=Czech|cy=Welsh|da=Danish|de=German|el=Greek|en=English|eo=Esperanto|es=Spanish"
    "|et=Estonian|eu=Basque|fa=Persian|fi=Finnish|fr=French|ga=Irish|gd=Scottish Gaelic|gl=Galician|grc=Ancient "
    "Greek|gr=Greek|gu=Gujarati|haw=Hawaiian|he=Hebrew|hi=Hindi|hr=Croatian|hu=Hungarian|hy=Armenian|id=Indonesian"
    "|is=Icelandic|it=Italian|ja=Japanese|ka=Georgian|kk=Kazakh|km=Khmer|kn=Kannada|ko=Korean|ku=Kurdish|la=Latin"
    "|lb=Luxembourgish|lt=Lithuanian|lv=Latvian|mk=Macedonian|ml=Malayalam|mn=Mongolian|mr=Marathi|ms=Malay"
    "|mt=Maltese|my=Burmese|ne=Nepali|nl=Dutch|no=Norwegian|oc=Occitan|pa=Punjabi|pl=Polish|ps=Pashto|pt=Portuguese"
    "|ro=Romanian|ru=Russian|sa=Sanskrit|sh=Serbo-Croatian|si=Sinhala|sk=Slovak|sl=Slovene|sq=Albanian|sr=Serbian"
    "|sv=Swedish|sw=Swahili|syr=Syriac|ta=Tamil|te=Telugu|th=Thai|tl=Tagalog|tr=Turkish|uk=Ukrainian|ur=Urdu"
    "|uz=Uzbek|vi=Vietnamese|yi=Yiddish|zh=Chinese|rus=Russian|ang=Old English"
)
LANGUAGE_NAMES = dict(pair.split("=") for pair in _LANGUAGE_NAMES.split("|"))
