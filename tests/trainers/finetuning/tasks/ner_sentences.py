"""Documents of a few dozen sentences in the layout of CoNLL-2003; the data of the shared task is not free."""

import re

# One document per block. Entities are in brackets, after their type.
DOCUMENTS = """
[MISC Portuguese] team wins in [LOC Oslo]
[PER Ana Duarte] scored twice for [ORG Porto Rovers] on Sunday .
Her club had lost to [ORG Bergen City] in [LOC Norway] a week before .
" We were tired , " said [PER Duarte] .
The next match is in [LOC Lisbon] on 14 May .
[ORG Rovers] [ORG Porto Fans] will travel there .

[ORG Nordbank] cuts its forecast
Shares of [ORG Nordbank AG] fell 3.4 percent in [LOC Frankfurt] .
The bank , which employs 12,000 people , said demand in [LOC Eastern Europe] was weak .
[PER Jonas Lindqvist] , its chief executive , met [MISC German] officials .
[PER Lindqvist] had run [ORG Svea Trust] until 2009 .
No one at the [ORG Finance Ministry] would comment .

Storm reaches [LOC New Zealand]
Rain fell over [LOC Wellington] and [LOC Nelson] all night .
The [ORG Red Cross] opened three schools .
[PER Mere Tawhai] of the [ORG Red Cross] spoke of [MISC Maori] villages that were cut off .
Roads to [LOC Picton] are closed .

[PER Okafor] writes again
The novel by [PER Chidi Okafor] is set in [LOC Lagos] .
It is called [MISC The Second Harvest] and won the [MISC Baobab Prize] .
[ORG Kestrel Press] printed it in [LOC London] .
[PER Okafor] reads from it at [ORG Trinity College] tonight .
Tickets cost 5 pounds .

Talks in [LOC Geneva]
Ministers of [LOC Chile] and [LOC Peru] met in [LOC Geneva] .
The [ORG United Nations] had invited them .
[PER Rosa Quispe] led the [MISC Peruvian] side .
" A good day for [LOC South America] , " [PER Quispe] told [ORG Radio Andina] .
They will meet again in [LOC Lima] .

Results of the [MISC Alpine Cup]
1. [PER Luca Moretti] ( [LOC Italy] ) 1:52.07
2. [PER Hans Egger] ( [LOC Austria] ) 1:52.30
3. [PER Pierre Roux] ( [LOC France] ) 1:53.11
[PER Moretti] [PER Egger] and [PER Roux] ski again in [LOC Aspen] .
"""


def sentences():
    """Return documents of sentences: lists of (word, entity type or None, whether it is the entity's first word)."""
    documents = []
    for block in DOCUMENTS.strip().split("\n\n"):
        documents.append([])
        for line in block.splitlines():
            words = []
            for kind, inner, word in re.findall(r"\[(\S+) ([^]]+)\]|(\S+)", line):
                if kind:
                    words += [(part, kind, number == 0) for number, part in enumerate(inner.split())]
                else:
                    words.append((word, None, False))
            documents[-1].append(words)
    return documents


def text(scheme="iob1", documents=None):
    """Return the content of a file, in IOB1 as in the shared task, or in IOB2."""
    lines = []
    for document in sentences() if documents is None else documents:
        lines += ["-DOCSTART- -X- -X- O", ""]
        for words in document:
            before = None
            for word, kind, first in words:
                begins = first and (scheme == "iob2" or kind == before)
                lines.append(f"{word} NN I-NP {'O' if kind is None else ('B-' if begins else 'I-') + kind}")
                before = kind
            lines.append("")
    return "\n".join(lines) + "\n"
