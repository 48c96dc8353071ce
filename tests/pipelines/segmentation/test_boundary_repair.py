"""Test that no sentence boundary is inside an abbreviation, an ordinal, a date or a quotation with its particle."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beambert.pipelines.segmentation.boundary_repair import MAX_ABBREVIATION_CHARACTERS, BoundaryRepair
from beambert.pipelines.segmentation.segmenters import split_sentences
from tests.cpu_time import seconds

# By language: texts with " | " (or "|" without spaces) at every sentence boundary.
TEXTS = {
    "ar": [
        "قال د. أحمد محمد إنه سعيد. | ثم ذهب.",
        "حضر أ. د. محمد علي. | كان ذلك في 500 ق.م. ثم مات.",
        "التقى بالسيد م. علي والسيدة د. هدى. | نعم. | ذهب أ. سالم.",
    ],
    "bn": ["ড. ইউনূস এলেন। | মো. রহিম গেলেন। | ডা. করিম।"],
    "ca": ["El Sr. Puig i la Sra. Roca. | La Av. Diagonal i St. Jordi."],
    "cs": ["Dne 3. října přišel. | V 19. století. | Pan dr. Novák a sv. Václav. | Bylo č. 5."],
    "da": ["Filmen er af Vilh. Nellemann. | Hun kom, bl.a. i går."],
    "de": [
        "Im 19. Jahrhundert kam er. | Am 3. Oktober ging er. | Er fuhr zur 3. Station.",
        "Das 2. Kapitel, der 1. Weltkrieg, die 5. Auflage. | Das 18. und 19. Jahrhundert.",
        "Im XIX. Jahrhundert, des 20. Jahrhunderts, zum 60. Geburtstag. | Im 19. Jh. war das so.",
        "Das war z. B. gut. | Er sagte u. a. Folgendes. | Die Fa. Siemens und Hr. Meier.",
        # A number may end a sentence.
        "Er wurde 19. | Danach ging er. | Er kam 1990. | Jahrhunderte vergingen. | Auf Platz 3. | Er gewann.",
        "Er kam am 3. | Danach ging er. | Das geschah im Jahr 2. | Maria kam. | Er ist 5. | Sie ist 6.",
    ],
    "el": ["Ο κ. Νίκος. | Οι κκ. Cox. | Η Β. Κορέα. | Η Αγ. Σοφία. | Αριθ. 3."],
    "en": [
        "As Smith et al. [12] measured it. | It was big. | See Fig. [3] for details. | Then go.",
        "It was found (ibid.) was the note. | It is approx. (see below) the same.",
        "Mr. Smith met Mrs. Jones. | Dr. Who came. | See No. 5 and p. 12 and pp. 3-5 of vol. II and ch. 3.",
        "The U.S. president spoke. | U.S.-based firms met. | They won, etc., and lost.",
        # Words that end a sentence.
        "He is tall. [3] | The next. | He left. [5] | Then he came. | Plan B. | Then go.",
        "He lived in the U.S. | He died. | At 5 p.m. | He left. | He ate a fig. | Then he slept.",
        "We go in. | All is well. | Act now. | To do. | I met A and B. | She left. | He was 5. | She was 6.",
        'He said "No." | Then he left. | “Stop!” he cried. | The end.',
    ],
    "es": [
        "El Sr. D. Juan y la Sra. Dña. Ana. | El Dr. Pérez. | Av. Libertador. | Gral. San Martín.",
        "En el 44 a. C. murió César. | En el año 14 d. C. murió. | Vivió en 753 a. C., en Roma.",
        "En EE. UU. hay mucho. | En EE. UU., dijo. | La pág. 12. | El núm. 5. | El cap. IV y el s. XIX.",
        "La vitamina D. | Los niños la toman. | Fue él. | Luego vino.",
    ],
    "fr": [
        "Il mourut en 52 av. J.-C. à Rome. | Il mourut en 52 av. J.-C., à Rome.",
        "Au IIe siècle apr. J.-C. les Romains vinrent. | Vers 50 av. J.-C. | Les Romains vinrent.",
        "M. Dupont est venu. | Il est parti. | Le Dr. Martin, le M. Le Pen et Mme. Rose. | J. Dupont aussi.",
        "L'art. 5 et le no. 5, p. 12. | Il prend de la vitamine C. | Les fruits en ont.",
        "« Non ? » demanda-t-il. | Il cria : « Viens ! » puis partit. | Il a dit non. | Mais elle vint.",
    ],
    "hi": [
        "डॉ. राम आए। | प्रो. शर्मा गए। | श्री. वर्मा। | नं. 5 है।",
        "पं. नेहरू प्रधानमंत्री थे। | वह गया. | डॉ. राम आए. | यह है. | वह था.",
    ],
    "hu": ["Dr. Nagy jött. | IV. Béla király. | A 19. század."],
    "id": ["Jl. Sudirman. | Tb. Maktal datang. | Ia pergi. | Ir. Suharyadi."],
    "it": [
        "Roma fu fondata nel 753 a. C., dopo la guerra. | Roma fu fondata nel 753 a.C., dopo la guerra.",
        "Nel 44 a.C. Cesare morì. | Poi Augusto regnò. | Morì nel 44 a.C. | Cesare era morto.",
        "L'on. Moro parla. | L'avv. Bianchi e il sig. Rossi. | S. Francesco. | Nel sec. XX. | L'art. 5 e n. 3.",
        "La S.p.A., con sede a Torino. | È così. | Poi venne. | Andò a casa. | Mario era lì.",
    ],
    "ja": [
        "「分かりました。」と彼は言った。|次の日、彼は来た。",
        "『行こう。』と言った。|「本当？」と聞いた。|「やめて！」って言った。|「行こう」。と彼は言った。",
        "「はい。」という声がした。|「待って！」と、彼女は叫んだ。|「もう終わりだ。」を読んだ。",
        # Words that begin like a particle.
        "「いい。」|とても良い。|「行く。」|彼は行った。|「何。」|だから行った。|「いや。」|でも行く。",
        "「はい。」|はい、そうです。|彼は来た。|とても嬉しい。|「うん。」|そして寝た。",
    ],
    "ko": ['그는 "갔다."라고 말했다. | 그는 왔다. | "가자!"라고 했다. | "네." | 그는 갔다.'],
    "mr": ["डॉ. आंबेडकर महान होते. | ते गेले. | प्रा. जोशी आले."],
    "nl": [
        "Dhr. De Boer, mevr. De Vries, St. Nicolaas, bijv. Amsterdam, o.a. Rotterdam. | Hij kwam.",
        "Zie blz. 5. | Dr. Smit en prof. Bos. | De man ging. | Het programma's. | Yens moeder.",
    ],
    "pl": [
        "W 1990 r. Polska była wolna. | Na ul. Długiej mieszka. | Prof. Nowak. | Umarł w 1990 r. | Jan był synem.",
        "To św. Jan i ks. Nowak, dr. Kowalski, pl. Zamkowy, art. 5 ust. 2, m.in. Tak. | W 1950 r. | Potem umarł.",
    ],
    "pt": [
        "No séc. XIX houve guerras. | Depois veio a paz. | D. Pedro II reinou. | Av. Paulista.",
        "O Sr. Silva e a Sra. Costa. | A Exma. Sra. Dona Ana. | Veja a pág. 12 e o cap. III do vol. IV.",
        "Em 44 a.C. César morreu. | Em 14 d. C. | A vitamina C. | O João toma. | É bom. | Foi. | Ela veio.",
    ],
    "ro": ["Dl. Popescu și d-na. Ionescu. | Str. Mare nr. 5. | El a venit."],
    "ru": [
        "Это было, т. е. так. | Живёт в г. Москва и на ул. Ленина. | Театр им. Пушкина. | А. С. Пушкин.",
        "Св. Николай. | Река р. Волга, о. Сахалин. | См. рис. 5. | Это я. | Потом он ушёл.",
    ],
    "sv": ["Vol. 5 och S:t Erik. | Han kom."],
    "sw": ["Dkt. Magufuli alikuja. | Bw. Juma."],
    "th": ["ดร. สมชาย ไป พ.ศ. 2500"],
    "tr": ['"Gel." dedi. | "Nerede?" diye sordu. | Sn. Yılmaz. | II. Selim padişahtı.'],
    "uk": ["Він жив у м. Київ. | Т. Г. Шевченко. | Музей ім. Франка. | Здоров'я. | Потім."],
    "vi": ["TP. Hồ Chí Minh. | PGS. TS. Lan đến."],
    "zh": [
        "“我走了。”他说。|然后他走了。|“你好！”她问道，很高兴。|“……。”他说。",
        "「走吧。」他說。|『好。』她答。|“你去哪儿？”小王问。|“上学。”小李回答说。",
        # Another clause, or the introduction of the next quotation.
        "“我不知道。”|我也不知道。|“好。”|他走了。|“来。”|妈妈说：“吃饭。”|大家吃。",
    ],
}


@pytest.mark.parametrize(("language", "marked"), [(code, text) for code, texts in TEXTS.items() for text in texts])
def test_boundaries(language, marked):
    blank = "" if language in ("ja", "zh") else " "
    expected = marked.split("|" if not blank else " | ")
    assert split_sentences(blank.join(expected), language) == expected


@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "xx"])
@given(
    st.lists(st.text("abcdefghilmnoprstuvz", min_size=5, max_size=12), min_size=2, max_size=2),
    st.sampled_from(["Maria", "Anna", "The", "Le", "Der", "Он", "Él"]),
)
def test_a_period_after_an_ordinary_word_ends_a_sentence(language, words, following):
    repair = BoundaryRepair(language)
    text = f"{' '.join(words)}. {following} goes"
    is_abbreviation = any(words[1] in group for group in (repair._titles, repair._others, repair._eras))
    assert repair.continues(text, 0, text.index(". ") + 1) == is_abbreviation


def test_the_characters_around_a_boundary_decide_as_the_complete_rules_do(monkeypatch):
    """Compare results with and without the shortcut for ordinary boundaries."""
    texts = [(language, text.replace("|", "")) for language, marked in TEXTS.items() for text in marked]
    ends = [(code, text, end) for code, text in texts for end in range(1, len(text)) if text[end - 1] in '.!?。"”」)']
    repairs = {language: BoundaryRepair(language, "ut qx\nabk") for language in TEXTS}
    with_shortcut = [repairs[language].continues(text, 0, end) for language, text, end in ends]
    monkeypatch.setattr(BoundaryRepair, "_is_ordinary", lambda _self, _around: False)
    complete = {language: BoundaryRepair(language, "ut qx\nabk") for language in TEXTS}
    assert with_shortcut == [complete[language].continues(text, 0, end) for language, text, end in ends]
    assert 0 < sum(with_shortcut) < len(ends)


@example("He left (now.) ", "en")
@given(st.text(st.sampled_from(".!?。”」)] -,aAド1é")), st.sampled_from(["de", "en", "ja", "zh", "th"]))
def test_any_boundary_of_any_text_is_decided(text, language):
    repair = BoundaryRepair(language, "a\nut qx")
    for end in range(1, len(text)):
        assert repair.continues(text, 0, end) in (True, False)


@pytest.mark.parametrize("language", TEXTS)
def test_abbreviations_are_ones_that_a_boundary_is_compared_with(language):
    repair = BoundaryRepair(language)
    for word in repair._titles | repair._others | repair._eras:
        assert len(word) < MAX_ABBREVIATION_CHARACTERS
        assert not word.endswith(".")
    assert not repair._titles & repair._others & repair._eras


def test_own_abbreviations():
    text = "Das gilt bzgl. Haus und Hof. Siehe Abk. Nord ut qx. Süd. Er sah qx. Süd und xbzgl. Nord."
    assert split_sentences(text, "en") == [
        "Das gilt bzgl.",
        "Haus und Hof.",
        "Siehe Abk.",
        "Nord ut qx.",
        "Süd.",
        "Er sah qx.",
        "Süd und xbzgl.",
        "Nord.",
    ]
    assert split_sentences(text, "en", "abk\nbzgl\nut qx") == [
        "Das gilt bzgl. Haus und Hof.",
        "Siehe Abk. Nord ut qx. Süd.",
        "Er sah qx.",
        "Süd und xbzgl.",
        "Nord.",
    ]


@pytest.mark.parametrize(
    ("language", "unit"),
    [("fr", "av. J.-C. Xa "), ("de", "am 3. Tag "), ("ja", "」。と"), ("zh", "“a。”他说"), ("pl", "r. Xa ")],
)
def test_the_time_is_linear_in_the_length_of_joined_text(language, unit):
    assert seconds(lambda: split_sentences(unit * 40_000, language), 20) < 10
