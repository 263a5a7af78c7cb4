// A JSON reader behind plain C types: simdjson finds the tokens, the shim checks the grammar and lays out a flat list
// of nodes. No C++ or simdjson header is included here, and no exception crosses.
#ifndef RATCHET_CSIMDJSON_H
#define RATCHET_CSIMDJSON_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a node is. The numbers are mirrored by `JSONKind`.
enum csimdjson_kind {
    CSIMDJSON_NULL = 0,
    CSIMDJSON_FALSE = 1,
    CSIMDJSON_TRUE = 2,
    CSIMDJSON_NUMBER = 3,
    CSIMDJSON_STRING = 4,
    CSIMDJSON_ARRAY = 5,
    CSIMDJSON_OBJECT = 6,
};

/// One value, in document order. An object's children are its keys and values in turns.
typedef struct csimdjson_node {
    uint32_t kind;
    /// Where the unescaped string or any other value's own text starts in the document's text.
    uint32_t offset;
    /// Bytes of that text; of a container, how many members or elements it has.
    uint32_t length;
    /// Where the value's text ended in what was read, a string's closing quote included.
    uint32_t end;
    /// The index of the first node after this one and all its descendants.
    uint32_t next;
} csimdjson_node;

/// How a parse ended.
enum csimdjson_result {
    CSIMDJSON_OK = 0,
    /// Not one JSON text: grammar, UTF-8, control characters, escapes, surrogates, trailing content.
    CSIMDJSON_MALFORMED = 1,
    /// Containers nested deeper than asked.
    CSIMDJSON_TOO_DEEP = 2,
    /// Well formed, but some string or key holds U+0000.
    CSIMDJSON_NUL = 3,
    /// Well formed, but some object names a member twice (only when refused).
    CSIMDJSON_DUPLICATE = 4,
    CSIMDJSON_NO_MEMORY = 5,
};

/// One parser and its buffers; used by one thread at a time.
typedef struct csimdjson_parser csimdjson_parser;

/// Null when memory is short.
csimdjson_parser *csimdjson_create(void);
void csimdjson_destroy(csimdjson_parser *parser);

/// What a parse made; valid until the next one of the same parser. All zero after a failure.
typedef struct csimdjson_document {
    const csimdjson_node *nodes;
    /// The bytes that nodes point into: what was read, but for strings with escapes.
    const uint8_t *text;
    uint32_t node_count;
} csimdjson_document;

/// Reads one document from a copy of `bytes`. The document before it is gone afterwards, whatever the result.
/// `max_depth` is how many containers may stand in each other.
int csimdjson_parse(
    csimdjson_parser *parser, const uint8_t *bytes, uint64_t length, uint32_t max_depth, int refuse_duplicates,
    csimdjson_document *document);

/// 1 when an object of a document names a member twice, 0 when not, -1 when memory is short.
int csimdjson_has_duplicates(const csimdjson_node *nodes, const uint8_t *text, const csimdjson_node *node);

#ifdef __cplusplus
}
#endif

#endif
