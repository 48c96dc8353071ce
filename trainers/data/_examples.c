/* Parse serialized tf.train.Example messages into arrays, with the results of `parsing.py` in Python.

   The messages are defined in tensorflow/core/example/example.proto and feature.proto. Every read is checked against
   the end of its message. The interpreter lock is released while records are parsed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MAX_FEATURES 64

/* Wire types of the protocol buffer encoding. */
enum { VARINT = 0, BYTES_8 = 1, BYTES = 2, BYTES_4 = 5 };
/* Fields of tf.train.Feature. */
enum { BYTES_LIST = 1, FLOAT_LIST = 2, INT64_LIST = 3 };
/* Problems of a record, as in `parsing.py`. */
enum { NONE = -1, INVALID, MISSING, WRONG_TYPE, WRONG_LENGTH };

typedef struct {
    const uint8_t *at, *end;
} Message;

typedef struct {
    uint64_t number;
    int kind;
    Message content; /* for a varint, its bytes */
} Field;

typedef struct {
    const char *name;
    Py_ssize_t name_length;
    int is_float;
    Py_buffer buffer;
    size_t length;     /* values of a row */
    int has_list;      /* whether the record has a list of the feature's type, or of another type */
    int has_other_list;
    size_t count;      /* values in the record */
} Feature;

typedef struct {
    int problem;
    Py_ssize_t record;
    int feature;
    size_t count;
} Result;

/* Read a varint modulo 2**64; 0 if it is incomplete or longer than 10 bytes. */
static int read_varint(Message *message, uint64_t *value)
{
    uint64_t result = 0;
    const uint8_t *at = message->at;
    for (int shift = 0; shift < 70 && at < message->end; shift += 7) {
        uint8_t byte = *at++;
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            message->at = at;
            *value = result;
            return 1;
        }
    }
    return 0;
}

/* Read the next field of a message that has not ended; 0 if it is invalid. */
static int read_field(Message *message, Field *field)
{
    uint64_t key, size;
    if (!read_varint(message, &key))
        return 0;
    field->number = key >> 3;
    field->kind = (int)(key & 7);
    field->content.at = message->at;
    switch (field->kind) {
    case VARINT:
        if (!read_varint(message, &size))
            return 0;
        field->content.end = message->at;
        return 1;
    case BYTES:
        if (!read_varint(message, &size))
            return 0;
        field->content.at = message->at;
        break;
    case BYTES_8:
        size = 8;
        break;
    case BYTES_4:
        size = 4;
        break;
    default:
        return 0;
    }
    if (size > (uint64_t)(message->end - message->at))
        return 0;
    message->at += size;
    field->content.end = message->at;
    return 1;
}

/* Append the values of an Int64List, converted to int32 modulo 2**32; 0 if the message is invalid. */
static int read_integers(Message list, Feature *feature, int32_t *row)
{
    Field field;
    size_t count = feature->count;
    while (list.at < list.end) {
        if (!read_field(&list, &field))
            return 0;
        if (field.number != 1 || (field.kind != BYTES && field.kind != VARINT))
            continue;
        while (field.content.at < field.content.end) {
            uint64_t value = *field.content.at;
            if (value < 0x80)
                field.content.at++;
            else if (!read_varint(&field.content, &value))
                return 0;
            if (count < feature->length)
                row[count] = (int32_t)(uint32_t)value;
            count++;
        }
    }
    feature->count = count;
    return 1;
}

/* Append the values of a FloatList; 0 if the message is invalid. */
static int read_floats(Message list, Feature *feature, float *row)
{
    Field field;
    while (list.at < list.end) {
        if (!read_field(&list, &field))
            return 0;
        if (field.number != 1 || (field.kind != BYTES && field.kind != BYTES_4))
            continue;
        if ((field.content.end - field.content.at) % 4)
            return 0;
        for (; field.content.at < field.content.end; field.content.at += 4) {
            const uint8_t *bytes = field.content.at;
            uint32_t bits =
                bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
            if (feature->count < feature->length)
                memcpy(row + feature->count, &bits, 4);
            feature->count++;
        }
    }
    return 1;
}

/* Append the values of a tf.train.Feature to its row; 0 if the message is invalid. */
static int read_feature(Message value, Feature *feature, Py_ssize_t record)
{
    Field field;
    char *row = (char *)feature->buffer.buf + 4 * feature->length * (size_t)record;
    while (value.at < value.end) {
        if (!read_field(&value, &field))
            return 0;
        if (field.kind != BYTES || field.number < BYTES_LIST || field.number > INT64_LIST)
            continue;
        if (field.number != (uint64_t)(feature->is_float ? FLOAT_LIST : INT64_LIST)) {
            feature->has_other_list = 1;
            continue;
        }
        feature->has_list = 1;
        if (!(feature->is_float ? read_floats(field.content, feature, (float *)row)
                                : read_integers(field.content, feature, (int32_t *)row)))
            return 0;
    }
    return 1;
}

/* Return the feature with a name; NULL if it is not read. The search starts at `*next`: files have a fixed order. */
static Feature *feature_named(Feature *features, int count, Message name, int *next)
{
    for (int tried = 0; tried < count; tried++) {
        int index = *next + tried < count ? *next + tried : *next + tried - count;
        Feature *feature = &features[index];
        Py_ssize_t length = name.end - name.at;
        if (feature->name_length == length && !memcmp(feature->name, name.at, (size_t)length)) {
            *next = index + 1 < count ? index + 1 : 0;
            return feature;
        }
    }
    return NULL;
}

/* Parse an entry of the map of features; 0 if it is invalid. Of entries with equal names the last one counts. */
static int read_entry(Message entry, Feature *features, int count, Py_ssize_t record, int *next)
{
    static const uint8_t nothing[1] = {0};
    Field field;
    Message fields = entry, name = {nothing, nothing};
    while (fields.at < fields.end) {
        if (!read_field(&fields, &field))
            return 0;
        if (field.number == 1 && field.kind == BYTES)
            name = field.content;
    }
    Feature *feature = feature_named(features, count, name, next);
    if (feature == NULL)
        return 1;
    if (feature->count)
        memset((char *)feature->buffer.buf + 4 * feature->length * (size_t)record, 0, 4 * feature->length);
    feature->has_list = feature->has_other_list = 0;
    feature->count = 0;
    for (fields = entry; fields.at < fields.end;) {
        read_field(&fields, &field);
        if (field.number == 2 && field.kind == BYTES && !read_feature(field.content, feature, record))
            return 0;
    }
    return 1;
}

/* Parse a record; 0 if it is not a valid tf.train.Example. */
static int read_record(Message record, Feature *features, int count, Py_ssize_t number)
{
    Field field, entry;
    int next = 0;
    for (int index = 0; index < count; index++) {
        features[index].has_list = features[index].has_other_list = 0;
        features[index].count = 0;
    }
    while (record.at < record.end) {
        if (!read_field(&record, &field))
            return 0;
        if (field.number != 1 || field.kind != BYTES)
            continue;
        while (field.content.at < field.content.end) {
            if (!read_field(&field.content, &entry))
                return 0;
            if (entry.number == 1 && entry.kind == BYTES && !read_entry(entry.content, features, count, number, &next))
                return 0;
        }
    }
    return 1;
}

static Result read_records(const Message *records, Py_ssize_t record_count, Feature *features, int count, int ragged)
{
    for (Py_ssize_t number = 0; number < record_count; number++) {
        if (!read_record(records[number], features, count, number))
            return (Result){INVALID, number, 0, 0};
        for (int index = 0; index < count; index++) {
            const Feature *feature = &features[index];
            if (!feature->has_list && feature->has_other_list)
                return (Result){WRONG_TYPE, number, index, 0};
            if (!feature->has_list && !ragged)
                return (Result){MISSING, number, index, 0};
            if (ragged ? feature->count > feature->length : feature->count != feature->length)
                return (Result){WRONG_LENGTH, number, index, feature->count};
        }
    }
    return (Result){NONE, 0, 0, 0};
}

/* Fill a Feature from (name, is_float, array); 0 with an exception if an argument is wrong. */
static int set_feature(PyObject *item, Py_ssize_t record_count, Feature *feature)
{
    PyObject *array;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "a feature must be a tuple (name, is_float, array)");
        return 0;
    }
    if (!PyArg_ParseTuple(item, "y#pO", &feature->name, &feature->name_length, &feature->is_float, &array))
        return 0;
    if (PyObject_GetBuffer(array, &feature->buffer, PyBUF_CONTIG) < 0)
        return 0;
    Py_buffer *buffer = &feature->buffer;
    if (buffer->ndim != 2 || buffer->itemsize != 4 || buffer->shape[0] != record_count) {
        PyErr_SetString(PyExc_ValueError, "an array must be int32 or float32 with one row per record");
        PyBuffer_Release(buffer);
        return 0;
    }
    feature->length = (size_t)buffer->shape[1];
    return 1;
}

PyDoc_STRVAR(parse_doc,
             "parse(records, features, ragged)\n--\n\n"
             "Parse records into arrays of zeros, as `beambert.trainers.data.parsing.parse_in_python`.");

static PyObject *parse(PyObject *self, PyObject *arguments)
{
    PyObject *records_argument, *features_argument, *result_object = NULL;
    int ragged;
    if (!PyArg_ParseTuple(arguments, "OOp", &records_argument, &features_argument, &ragged))
        return NULL;
    /* Tuples of our own, so that another thread cannot change them. */
    PyObject *records = PySequence_Tuple(records_argument);
    PyObject *items = records ? PySequence_Tuple(features_argument) : NULL;
    if (items == NULL) {
        Py_XDECREF(records);
        return NULL;
    }
    Py_ssize_t record_count = PyTuple_GET_SIZE(records);
    Py_ssize_t item_count = PyTuple_GET_SIZE(items);
    Feature features[MAX_FEATURES];
    int feature_count = 0;
    Message *messages = PyMem_Malloc(sizeof(Message) * (size_t)(record_count ? record_count : 1));
    if (messages == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (item_count > MAX_FEATURES) {
        PyErr_SetString(PyExc_ValueError, "too many features");
        goto done;
    }
    for (; feature_count < item_count; feature_count++)
        if (!set_feature(PyTuple_GET_ITEM(items, feature_count), record_count, &features[feature_count]))
            goto done;
    for (Py_ssize_t number = 0; number < record_count; number++) {
        PyObject *record = PyTuple_GET_ITEM(records, number);
        if (!PyBytes_Check(record)) {
            PyErr_SetString(PyExc_TypeError, "a record must be bytes");
            goto done;
        }
        messages[number].at = (const uint8_t *)PyBytes_AS_STRING(record);
        messages[number].end = messages[number].at + PyBytes_GET_SIZE(record);
    }
    Result result;
    Py_BEGIN_ALLOW_THREADS
    result = read_records(messages, record_count, features, feature_count, ragged);
    Py_END_ALLOW_THREADS
    result_object = result.problem == NONE ? Py_NewRef(Py_None)
                                           : Py_BuildValue("inin", result.problem, result.record, result.feature,
                                                           (Py_ssize_t)result.count);
done:
    PyMem_Free(messages);
    while (feature_count--)
        PyBuffer_Release(&features[feature_count].buffer);
    Py_DECREF(items);
    Py_DECREF(records);
    return result_object;
}

static PyMethodDef methods[] = {{"parse", parse, METH_VARARGS, parse_doc}, {NULL, NULL, 0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "beambert.trainers.data._examples",
    .m_doc = "Parse serialized tf.train.Example messages into arrays.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__examples(void)
{
    return PyModule_Create(&module);
}
