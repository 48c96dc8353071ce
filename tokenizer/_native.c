/* BERT's tokenizer in one pass over the text: characters -> words -> tokens. And what a word costs without one of its
   tokens, for the learner of vocabularies.

   This file does not implement the character rules. The first time a character occurs, its replacement is requested
   from Python (`beambert.tokenizer.normalization.replace_character`) and cached in a table. Python also splits every chunk that
   contains a context-dependent character. WordPiece (longest match first) descends a trie of the vocabulary.
   tests/tokenizer/test_every_character.py checks this file against the published rules. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define CODE_POINTS 0x110000
#define MAX_WORD_CHARACTERS 200
/* The cache of words: a megabyte, which fits in the second-level cache of a processor. */
#define KNOWN_WORDS 16384
#define KNOWN_CHARACTERS 11
#define KNOWN_TOKENS 3

/* A table entry: the action (high byte), and a code point or an index in `sequences` (low 24 bits). */
enum { APPEND, ALONE, REMOVED, ACCENT, SPACE, SEQUENCE, CONTEXT_DEPENDENT, UNSEEN = 0xFF };
#define ENTRY(action, value) (((uint32_t)(action) << 24) | (uint32_t)(value))
#define ACTION(entry) ((entry) >> 24)
#define VALUE(entry) ((entry) & 0xFFFFFF)

enum { WORD_START, CONTINUATION }; /* The two roots of the trie. */

typedef struct {
    uint64_t key; /* (parent << 21 | code point) + 1; 0 if the slot is free */
    int32_t child;
} Slot;

/* A word and its tokens. */
typedef struct {
    uint32_t characters[KNOWN_CHARACTERS];
    int32_t ids[KNOWN_TOKENS];
    int32_t length, count; /* of characters and tokens; length 0 if the slot is free */
} Known;

typedef struct {
    PyObject_HEAD
    PyObject *replace_character; /* code point -> (replacement or None, whether it is an accent) */
    PyObject *split_chunk;       /* chunk -> [(word, index in the chunk of each of its characters)] */
    uint32_t *table;             /* [CODE_POINTS] */
    uint32_t *sequences;         /* repeated: a length N, then N entries */
    size_t sequences_used, sequences_size;
    Slot *slots; /* open addressing, a power of two */
    uint64_t slot_mask;
    int32_t *token_ids; /* by node of the trie, -1 if no token ends there */
    int32_t nodes;
    int32_t unknown_id;
    Known *known; /* [KNOWN_WORDS], by hash; NULL after a token is dropped */
} Encoder;

typedef struct {
    int32_t *ids;
    int32_t *offsets; /* two per token; NULL without offsets */
    size_t used, size;
    int with_offsets;
} Tokens;

typedef struct {
    uint32_t characters[MAX_WORD_CHARACTERS];
    Py_ssize_t sources[MAX_WORD_CHARACTERS]; /* index in the text of the source of each character */
    Py_ssize_t first_source, last_source;    /* minimum and maximum source, also beyond MAX_WORD_CHARACTERS */
    size_t length;                           /* may exceed MAX_WORD_CHARACTERS */
} Word;

typedef struct {
    PyObject *object;
    int kind;
    const void *data;
    Py_ssize_t length;
} Text;

/* ---- trie ---- */

static inline uint64_t hash_key(uint64_t key)
{
    key *= 0x9E3779B97F4A7C15ULL;
    return key ^ (key >> 32);
}

static inline int32_t find_child(const Encoder *self, int32_t node, uint32_t code_point)
{
    uint64_t key = (((uint64_t)node << 21) | code_point) + 1;
    for (uint64_t i = hash_key(key) & self->slot_mask;; i = (i + 1) & self->slot_mask) {
        if (self->slots[i].key == key)
            return self->slots[i].child;
        if (!self->slots[i].key)
            return -1;
    }
}

static int32_t add_child(Encoder *self, int32_t node, uint32_t code_point)
{
    int32_t child = find_child(self, node, code_point);
    if (child >= 0)
        return child;
    uint64_t key = (((uint64_t)node << 21) | code_point) + 1;
    uint64_t i = hash_key(key) & self->slot_mask;
    while (self->slots[i].key)
        i = (i + 1) & self->slot_mask;
    child = self->nodes++;
    self->slots[i].key = key;
    self->slots[i].child = child;
    return child;
}

/* Returns the root of the tokens that begin like this one, and skips its "##". */
static int32_t find_root(PyObject *token, Py_ssize_t *i)
{
    if (PyUnicode_GET_LENGTH(token) <= 2 || PyUnicode_READ_CHAR(token, 0) != '#' || PyUnicode_READ_CHAR(token, 1) != '#')
        return WORD_START;
    *i = 2;
    return CONTINUATION;
}

static int build_trie(Encoder *self, PyObject *tokens)
{
    Py_ssize_t count = PyList_GET_SIZE(tokens);
    uint64_t characters = 2;
    for (Py_ssize_t id = 0; id < count; id++) {
        PyObject *token = PyList_GET_ITEM(tokens, id);
        if (!PyUnicode_Check(token)) {
            PyErr_SetString(PyExc_TypeError, "tokens must be a list of str");
            return -1;
        }
        characters += (uint64_t)PyUnicode_GET_LENGTH(token);
    }
    if (count > INT32_MAX / 2 || characters > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "the vocabulary is too large");
        return -1;
    }
    uint64_t size = 16;
    while (size < 2 * characters)
        size *= 2;
    self->slot_mask = size - 1;
    self->slots = PyMem_Calloc(size, sizeof(Slot));
    self->token_ids = PyMem_Malloc(characters * sizeof(int32_t));
    if (!self->slots || !self->token_ids) {
        PyErr_NoMemory();
        return -1;
    }
    memset(self->token_ids, 0xFF, characters * sizeof(int32_t));
    self->nodes = 2;
    for (Py_ssize_t id = 0; id < count; id++) {
        PyObject *token = PyList_GET_ITEM(tokens, id);
        Py_ssize_t i = 0;
        int32_t node = find_root(token, &i);
        for (; i < PyUnicode_GET_LENGTH(token); i++)
            node = add_child(self, node, PyUnicode_READ_CHAR(token, i));
        self->token_ids[node] = (int32_t)id;
    }
    return 0;
}

/* ---- tokens ---- */

static int add_token(Encoder *self, Tokens *tokens, int32_t id, Py_ssize_t start, Py_ssize_t end, const Text *text)
{
    if (tokens->used == tokens->size) {
        size_t size = tokens->size ? 2 * tokens->size : 4096;
        int32_t *ids = PyMem_Realloc(tokens->ids, size * sizeof(int32_t));
        if (!ids) {
            PyErr_NoMemory();
            return -1;
        }
        tokens->ids = ids;
        if (tokens->with_offsets) {
            int32_t *offsets = PyMem_Realloc(tokens->offsets, 2 * size * sizeof(int32_t));
            if (!offsets) {
                PyErr_NoMemory();
                return -1;
            }
            tokens->offsets = offsets;
        }
        tokens->size = size;
    }
    if (tokens->with_offsets) {
        while (end < text->length && ACTION(self->table[PyUnicode_READ(text->kind, text->data, end)]) == ACCENT)
            end++;
        tokens->offsets[2 * tokens->used] = (int32_t)start;
        tokens->offsets[2 * tokens->used + 1] = (int32_t)end;
    }
    tokens->ids[tokens->used++] = id;
    return 0;
}

static inline void append_character(Word *word, uint32_t character, Py_ssize_t source)
{
    if (!word->length)
        word->first_source = word->last_source = source;
    if (source < word->first_source)
        word->first_source = source;
    if (source > word->last_source)
        word->last_source = source;
    if (word->length < MAX_WORD_CHARACTERS) {
        word->characters[word->length] = character;
        word->sources[word->length] = source;
    }
    word->length++;
}

static inline Known *find_known(Encoder *self, const Word *word)
{
    uint64_t hash = word->length;
    for (size_t i = 0; i < word->length; i++)
        hash = (hash ^ word->characters[i]) * 0x9E3779B97F4A7C15ULL;
    return &self->known[(hash >> 32) & (KNOWN_WORDS - 1)];
}

/* Adds the tokens of the word, or [UNK], and clears the word. */
static int end_word(Encoder *self, Tokens *tokens, Word *word, const Text *text)
{
    size_t length = word->length, start = 0, before = tokens->used;
    int32_t root = WORD_START;
    Known *known = NULL; /* where the tokens of a short word are kept, without offsets */
    if (self->known && length <= KNOWN_CHARACTERS && !tokens->with_offsets) {
        known = find_known(self, word);
        if (known->length == (int32_t)length &&
            !memcmp(known->characters, word->characters, length * sizeof(uint32_t))) {
            word->length = 0;
            for (int32_t k = 0; k < known->count; k++)
                if (add_token(self, tokens, known->ids[k], 0, 0, text) < 0)
                    return -1;
            return 0;
        }
    }
    word->length = 0;
    if (length <= MAX_WORD_CHARACTERS) {
        while (start < length) {
            int32_t node = root, longest = -1;
            size_t end = start;
            for (size_t i = start; i < length; i++) {
                node = find_child(self, node, word->characters[i]);
                if (node < 0)
                    break;
                if (self->token_ids[node] >= 0) {
                    longest = self->token_ids[node];
                    end = i + 1;
                }
            }
            if (longest < 0)
                break;
            Py_ssize_t first = word->sources[start], last = first;
            if (tokens->with_offsets)
                for (size_t i = start + 1; i < end; i++) {
                    first = word->sources[i] < first ? word->sources[i] : first;
                    last = word->sources[i] > last ? word->sources[i] : last;
                }
            if (add_token(self, tokens, longest, first, last + 1, text) < 0)
                return -1;
            start = end;
            root = CONTINUATION;
        }
    }
    if (start < length) {
        tokens->used = before;
        if (add_token(self, tokens, self->unknown_id, word->first_source, word->last_source + 1, text) < 0)
            return -1;
    }
    size_t count = tokens->used - before;
    if (known && count <= KNOWN_TOKENS) {
        memcpy(known->characters, word->characters, length * sizeof(uint32_t));
        memcpy(known->ids, tokens->ids + before, count * sizeof(int32_t));
        known->length = (int32_t)length;
        known->count = (int32_t)count;
    }
    return 0;
}

/* ---- characters ---- */

/* Requests the replacement of a character from Python and writes it into the table. */
static int cache_character(Encoder *self, uint32_t character)
{
    int accent;
    PyObject *replacement;
    PyObject *answer = PyObject_CallFunction(self->replace_character, "I", (unsigned int)character);
    if (!answer)
        return -1;
    if (!PyArg_ParseTuple(answer, "Op", &replacement, &accent))
        goto failed;
    if (replacement == Py_None) {
        self->table[character] = ENTRY(CONTEXT_DEPENDENT, 0);
        Py_DECREF(answer);
        return 0;
    }
    if (!PyUnicode_Check(replacement)) {
        PyErr_SetString(PyExc_TypeError, "a replacement must be a str or None");
        goto failed;
    }
    Py_ssize_t length = PyUnicode_GET_LENGTH(replacement);
#define AT(i) ((uint32_t)PyUnicode_READ_CHAR(replacement, (i)))
    if (length == 0)
        self->table[character] = ENTRY(accent ? ACCENT : REMOVED, 0);
    else if (length == 1)
        self->table[character] = Py_UNICODE_ISSPACE(AT(0)) ? ENTRY(SPACE, 0) : ENTRY(APPEND, AT(0));
    else if (length == 3 && AT(0) == ' ' && AT(2) == ' ' && !Py_UNICODE_ISSPACE(AT(1)))
        self->table[character] = ENTRY(ALONE, AT(1));
    else {
        size_t needed = self->sequences_used + 1 + (size_t)length;
        if (needed >= 0xFFFFFF) {
            PyErr_SetString(PyExc_OverflowError, "too many characters have long replacements");
            goto failed;
        }
        if (needed > self->sequences_size) {
            uint32_t *sequences = PyMem_Realloc(self->sequences, 2 * needed * sizeof(uint32_t));
            if (!sequences) {
                PyErr_NoMemory();
                goto failed;
            }
            self->sequences = sequences;
            self->sequences_size = 2 * needed;
        }
        self->table[character] = ENTRY(SEQUENCE, self->sequences_used);
        self->sequences[self->sequences_used++] = (uint32_t)length;
        for (Py_ssize_t i = 0; i < length; i++)
            self->sequences[self->sequences_used++] =
                Py_UNICODE_ISSPACE(AT(i)) ? ENTRY(SPACE, 0) : ENTRY(APPEND, AT(i));
    }
#undef AT
    Py_DECREF(answer);
    return 0;
failed:
    Py_DECREF(answer);
    return -1;
}

/* Adds the tokens of text[start:end], which Python splits into words. */
static int encode_chunk(Encoder *self, Tokens *tokens, Word *word, const Text *text, Py_ssize_t start, Py_ssize_t end)
{
    PyObject *chunk = PyUnicode_Substring(text->object, start, end);
    if (!chunk)
        return -1;
    PyObject *words = PyObject_CallOneArg(self->split_chunk, chunk);
    Py_DECREF(chunk);
    if (!words)
        return -1;
    if (!PyList_Check(words)) {
        PyErr_SetString(PyExc_TypeError, "words must be a list");
        goto failed;
    }
    for (Py_ssize_t w = 0; w < PyList_GET_SIZE(words); w++) {
        PyObject *characters, *sources;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(words, w), "UO!", &characters, &PyList_Type, &sources))
            goto failed;
        if (PyList_GET_SIZE(sources) != PyUnicode_GET_LENGTH(characters)) {
            PyErr_SetString(PyExc_ValueError, "each character of a word needs its index in the chunk");
            goto failed;
        }
        word->length = 0;
        for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(characters); i++) {
            Py_ssize_t source = PyLong_AsSsize_t(PyList_GET_ITEM(sources, i));
            if (source == -1 && PyErr_Occurred())
                goto failed;
            append_character(word, PyUnicode_READ_CHAR(characters, i), start + source);
        }
        if (word->length && end_word(self, tokens, word, text) < 0)
            goto failed;
    }
    Py_DECREF(words);
    return 0;
failed:
    Py_DECREF(words);
    return -1;
}

static int encode_text(Encoder *self, Tokens *tokens, const Text *text)
{
    Word word;
    word.length = 0;
    Py_ssize_t chunk_start = 0;
    size_t tokens_before_chunk = tokens->used;
    if (tokens->with_offsets) {
        if (text->length > INT32_MAX) {
            PyErr_SetString(PyExc_OverflowError, "a text of more than 2**31 - 1 characters has no int32 offsets");
            return -1;
        }
        /* add_token reads the entries of following accents. */
        for (Py_ssize_t i = 0; i < text->length; i++) {
            uint32_t character = PyUnicode_READ(text->kind, text->data, i);
            if (ACTION(self->table[character]) == UNSEEN && cache_character(self, character) < 0)
                return -1;
        }
    }
    for (Py_ssize_t i = 0; i < text->length; i++) {
        uint32_t character = PyUnicode_READ(text->kind, text->data, i);
        uint32_t entry = self->table[character];
        if (ACTION(entry) == UNSEEN) {
            if (cache_character(self, character) < 0)
                return -1;
            entry = self->table[character];
        }
        switch (ACTION(entry)) {
        case APPEND:
            append_character(&word, VALUE(entry), i);
            if (tokens->with_offsets)
                break;
            /* The rest of the word, without the sources of its characters. */
            for (; i + 1 < text->length; i++) {
                entry = self->table[PyUnicode_READ(text->kind, text->data, i + 1)];
                if (ACTION(entry) != APPEND)
                    break;
                if (word.length < MAX_WORD_CHARACTERS)
                    word.characters[word.length] = VALUE(entry);
                word.length++;
            }
            break;
        case ALONE:
            if (word.length && end_word(self, tokens, &word, text) < 0)
                return -1;
            append_character(&word, VALUE(entry), i);
            if (end_word(self, tokens, &word, text) < 0)
                return -1;
            break;
        case SPACE:
            if (word.length && end_word(self, tokens, &word, text) < 0)
                return -1;
            chunk_start = i + 1;
            tokens_before_chunk = tokens->used;
            break;
        case SEQUENCE: {
            const uint32_t *sequence = self->sequences + VALUE(entry);
            for (uint32_t k = 1; k <= sequence[0]; k++) {
                if (ACTION(sequence[k]) == APPEND)
                    append_character(&word, VALUE(sequence[k]), i);
                else if (word.length && end_word(self, tokens, &word, text) < 0)
                    return -1;
            }
            break;
        }
        case CONTEXT_DEPENDENT: {
            Py_ssize_t end = i + 1;
            for (; end < text->length; end++) {
                uint32_t next = PyUnicode_READ(text->kind, text->data, end);
                if (ACTION(self->table[next]) == UNSEEN && cache_character(self, next) < 0)
                    return -1;
                if (ACTION(self->table[next]) == SPACE)
                    break;
            }
            tokens->used = tokens_before_chunk;
            if (encode_chunk(self, tokens, &word, text, chunk_start, end) < 0)
                return -1;
            word.length = 0;
            /* The next character is the space that ends the chunk, if any. */
            i = end - 1;
            break;
        }
        default: /* REMOVED, ACCENT */
            break;
        }
    }
    return word.length ? end_word(self, tokens, &word, text) : 0;
}

/* ---- the type ---- */

PyDoc_STRVAR(encode_doc,
             "encode(texts: list[str], with_offsets: bool) -> (ids, row_splits, offsets)\n\n"
             "Return ids (int32 [T]), row_splits (int64 [N + 1]) and offsets (int32 [T, 2], or None without offsets)\n"
             "as bytearrays.");

static PyObject *encode(Encoder *self, PyObject *args)
{
    PyObject *texts, *ids = NULL, *row_splits = NULL, *offsets = NULL, *result = NULL;
    Tokens tokens = {NULL, NULL, 0, 0, 0};
    if (!PyArg_ParseTuple(args, "O!p", &PyList_Type, &texts, &tokens.with_offsets))
        return NULL;
    /* A tuple, so that no callback can modify it during encoding. */
    texts = PyList_AsTuple(texts);
    if (!texts)
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(texts);
    row_splits = PyByteArray_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int64_t));
    if (!row_splits)
        goto done;
    int64_t split = 0;
    memcpy(PyByteArray_AS_STRING(row_splits), &split, sizeof split);
    for (Py_ssize_t i = 0; i < count; i++) {
        Text text;
        text.object = PyTuple_GET_ITEM(texts, i);
        if (!PyUnicode_Check(text.object)) {
            PyErr_Format(PyExc_TypeError, "texts[%zd] is a %s, not a str", i, Py_TYPE(text.object)->tp_name);
            goto done;
        }
        text.kind = PyUnicode_KIND(text.object);
        text.data = PyUnicode_DATA(text.object);
        text.length = PyUnicode_GET_LENGTH(text.object);
        if (encode_text(self, &tokens, &text) < 0)
            goto done;
        split = (int64_t)tokens.used;
        memcpy(PyByteArray_AS_STRING(row_splits) + (i + 1) * (Py_ssize_t)sizeof split, &split, sizeof split);
    }
    ids = PyByteArray_FromStringAndSize((const char *)tokens.ids, (Py_ssize_t)(tokens.used * sizeof(int32_t)));
    if (tokens.with_offsets)
        offsets =
            PyByteArray_FromStringAndSize((const char *)tokens.offsets, (Py_ssize_t)(2 * tokens.used * sizeof(int32_t)));
    else
        offsets = Py_NewRef(Py_None);
    if (ids && offsets)
        result = PyTuple_Pack(3, ids, row_splits, offsets);
done:
    PyMem_Free(tokens.ids);
    PyMem_Free(tokens.offsets);
    Py_XDECREF(ids);
    Py_XDECREF(row_splits);
    Py_XDECREF(offsets);
    Py_DECREF(texts);
    return result;
}

PyDoc_STRVAR(costs_doc,
             "costs(word: str, first: int) -> (spelling, costs, involved)\n\n"
             "As `beambert.tokenizer.learner._Matcher.costs`.");

/* Returns the number of the longest token but `without` at an offset of a word, and its end; -1 if there is none. */
static int32_t longest_token(const Encoder *self, const Text *word, Py_ssize_t start, int32_t without, Py_ssize_t *end)
{
    int32_t node = start ? CONTINUATION : WORD_START, longest = -1;
    for (Py_ssize_t i = start; i < word->length; i++) {
        node = find_child(self, node, PyUnicode_READ(word->kind, word->data, i));
        if (node < 0)
            break;
        if (self->token_ids[node] >= 0 && self->token_ids[node] != without) {
            longest = self->token_ids[node];
            *end = i + 1;
        }
    }
    return longest;
}

static int append_number(PyObject *list, int32_t number)
{
    PyObject *object = PyLong_FromLong(number);
    int status = object ? PyList_Append(list, object) : -1;
    Py_XDECREF(object);
    return status;
}

/* Adds a token to `involved` unless it is there or before `first`. */
static int involve(PyObject *involved, int32_t token, int32_t first)
{
    if (token < first)
        return 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(involved); i++)
        if (PyLong_AsLong(PyList_GET_ITEM(involved, i)) == token)
            return 0;
    return append_number(involved, token);
}

static PyObject *costs(Encoder *self, PyObject *args)
{
    Text word;
    int32_t first;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "Ui", &word.object, &first))
        return NULL;
    word.kind = PyUnicode_KIND(word.object);
    word.data = PyUnicode_DATA(word.object);
    word.length = PyUnicode_GET_LENGTH(word.object);
    Py_ssize_t length = word.length, count = 0, end = 0;
    /* By offset in the word, the number of tokens before it, or -1 within a token. By token, its number and offset. */
    int32_t *before = PyMem_Malloc((size_t)(3 * length + 1) * sizeof(int32_t));
    int32_t *tokens = before + length + 1, *starts = tokens + length;
    PyObject *spelling = PyList_New(0), *costs = PyList_New(0), *involved = PyList_New(0);
    if (!before) {
        PyErr_NoMemory();
        goto done;
    }
    if (!spelling || !costs || !involved)
        goto done;
    memset(before, 0xFF, (size_t)(length + 1) * sizeof(int32_t));
    for (Py_ssize_t start = 0; start < length; start = end) {
        int32_t token = longest_token(self, &word, start, -1, &end);
        if (token < 0) {
            PyErr_Format(PyExc_ValueError, "no token for %R at %zd", word.object, start);
            goto done;
        }
        before[start] = (int32_t)count;
        starts[count] = (int32_t)start;
        tokens[count++] = token;
        if (append_number(spelling, token) < 0 || involve(involved, token, first) < 0)
            goto done;
    }
    before[length] = (int32_t)count;
    Py_ssize_t candidates = PyList_GET_SIZE(involved);
    for (Py_ssize_t candidate = 0; candidate < candidates; candidate++) {
        int32_t token = (int32_t)PyLong_AsLong(PyList_GET_ITEM(involved, candidate));
        long cost = 0;
        Py_ssize_t reached = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            if (tokens[i] != token || starts[i] < reached)
                continue;
            reached = starts[i];
            do {
                int32_t other = longest_token(self, &word, reached, token, &reached);
                if (other < 0) {
                    PyErr_Format(PyExc_ValueError, "no other token for %R", word.object);
                    goto done;
                }
                if (involve(involved, other, first) < 0)
                    goto done;
                cost++;
            } while (before[reached] < 0);
            cost -= before[reached] - (long)i;
        }
        PyObject *pair = Py_BuildValue("il", token, cost);
        if (!pair || PyList_Append(costs, pair) < 0) {
            Py_XDECREF(pair);
            goto done;
        }
        Py_DECREF(pair);
    }
    result = PyTuple_Pack(3, spelling, costs, involved);
done:
    PyMem_Free(before);
    Py_XDECREF(spelling);
    Py_XDECREF(costs);
    Py_XDECREF(involved);
    return result;
}

PyDoc_STRVAR(drop_doc, "drop(token: str) -> None\n\nForget a token.");

static PyObject *drop(Encoder *self, PyObject *token)
{
    if (!PyUnicode_Check(token)) {
        PyErr_SetString(PyExc_TypeError, "token must be a str");
        return NULL;
    }
    Py_ssize_t i = 0;
    int32_t node = find_root(token, &i);
    for (; node >= 0 && i < PyUnicode_GET_LENGTH(token); i++)
        node = find_child(self, node, PyUnicode_READ_CHAR(token, i));
    if (node >= 0)
        self->token_ids[node] = -1;
    /* What the cache has of other tokens is no longer right. */
    PyMem_Free(self->known);
    self->known = NULL;
    Py_RETURN_NONE;
}

static PyObject *encoder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *tokens, *replace_character = Py_None, *split_chunk = Py_None;
    int unknown_id = -1;
    static char *names[] = {"tokens", "unknown_id", "replace_character", "split_chunk", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|iOO", names, &PyList_Type, &tokens, &unknown_id,
                                     &replace_character, &split_chunk))
        return NULL;
    Encoder *self = (Encoder *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->replace_character = Py_NewRef(replace_character);
    self->split_chunk = Py_NewRef(split_chunk);
    self->unknown_id = unknown_id;
    self->table = PyMem_Malloc(CODE_POINTS * sizeof(uint32_t));
    self->known = PyMem_Calloc(KNOWN_WORDS, sizeof(Known));
    if (!self->table || !self->known) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    memset(self->table, 0xFF, CODE_POINTS * sizeof(uint32_t));
    if (build_trie(self, tokens) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void encoder_dealloc(Encoder *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(self->table);
    PyMem_Free(self->sequences);
    PyMem_Free(self->slots);
    PyMem_Free(self->token_ids);
    PyMem_Free(self->known);
    Py_XDECREF(self->replace_character);
    Py_XDECREF(self->split_chunk);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMethodDef encoder_methods[] = {
    {"encode", (PyCFunction)encode, METH_VARARGS, encode_doc},
    {"costs", (PyCFunction)costs, METH_VARARGS, costs_doc},
    {"drop", (PyCFunction)drop, METH_O, drop_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot encoder_slots[] = {
    {Py_tp_new, encoder_new},
    {Py_tp_dealloc, encoder_dealloc},
    {Py_tp_methods, encoder_methods},
    {0, NULL},
};

static PyType_Spec encoder_spec = {
    .name = "beambert.tokenizer._native.Encoder",
    .basicsize = sizeof(Encoder),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = encoder_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&encoder_spec);
    if (!type)
        return -1;
    int status = PyModule_AddObjectRef(module, "Encoder", type);
    Py_DECREF(type);
    return status;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "beambert.tokenizer._native",
    .m_size = 0,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&module_definition);
}
