// simdjson's first stage runs over the whole text: it checks UTF-8 and control characters and yields the offset of
// every token's first byte. The second stage is our own, since simdjson's refuses numbers that we keep as text (30 digits,
// 1e400), stops at the first of duplicate members and lets U+0000 pass.
#include "CSimdjson.h"

// No code path may throw: callers are not C++.
#define SIMDJSON_EXCEPTIONS 0
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace {

using Index = simdjson::internal::dom_parser_implementation;

// The most that a token takes beyond its own bytes while it is looked at; simdjson's own padding covers it.
constexpr size_t padding = simdjson::SIMDJSON_PADDING;
// The first buffers: nearly every SDK body fits.
constexpr size_t first_capacity = 4096;
// A parser that once read more than this lets its buffers go at the next body that is smaller, so that one large body
// per connection doesn't hold some twenty times its size for ever.
constexpr size_t kept_capacity = 256 * 1024;
// Offsets are 32 bits wide and simdjson adds sentinels after the last.
constexpr uint64_t max_length = 0x7fffffff;
// Up to here comparing every key with every other is cheaper than sorting.
constexpr uint32_t pairwise_members = 16;

#define always_inline inline __attribute__((always_inline))

template <typename T> bool grow(T *&buffer, size_t &capacity, size_t wanted) {
    if (wanted <= capacity) return true;
    void *grown = std::realloc(buffer, wanted * sizeof(T));
    if (!grown) return false;
    buffer = static_cast<T *>(grown);
    capacity = wanted;
    return true;
}

always_inline bool is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

always_inline bool is_digit(uint8_t byte) { return uint8_t(byte - '0') < 10; }

inline int hex_value(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
    return -1;
}

// True when a scalar may end before `at`.
always_inline bool ends(const uint8_t *text, size_t length, size_t at) {
    return text[at] == ',' || text[at] == '}' || text[at] == ']' || at >= length || is_space(text[at]);
}

// The end of the number at `at` (RFC 8259 §6), or 0. Behind the text is padding, which is no digit.
always_inline size_t number_end(const uint8_t *text, size_t length, size_t at) {
    size_t i = at;
    if (text[i] == '-') i++;
    if (!is_digit(text[i])) return 0;
    if (text[i] == '0') {
        i++;
    } else {
        while (is_digit(text[i])) i++;
    }
    if (text[i] == '.') {
        size_t first = ++i;
        while (is_digit(text[i])) i++;
        if (i == first) return 0;
    }
    if ((text[i] | 0x20) == 'e') {
        i++;
        if (text[i] == '+' || text[i] == '-') i++;
        size_t first = i;
        while (is_digit(text[i])) i++;
        if (i == first) return 0;
    }
    return ends(text, length, i) ? i : 0;
}

always_inline size_t literal_end(const uint8_t *text, size_t length, size_t at, const char *word, size_t size) {
    return length - at >= size && std::memcmp(text + at, word, size) == 0 && ends(text, length, at + size) ? at + size
                                                                                                           : 0;
}

// The end of the number, true, false or null at `at`, or 0.
always_inline size_t scalar_end(const uint8_t *text, size_t length, size_t at, uint32_t &kind) {
    switch (text[at]) {
    case 't': kind = CSIMDJSON_TRUE; return literal_end(text, length, at, "true", 4);
    case 'f': kind = CSIMDJSON_FALSE; return literal_end(text, length, at, "false", 5);
    case 'n': kind = CSIMDJSON_NULL; return literal_end(text, length, at, "null", 4);
    default: kind = CSIMDJSON_NUMBER; return number_end(text, length, at);
    }
}

// The value of four hexadecimal digits before `end`, or -1.
inline int hex_quad(const uint8_t *at, const uint8_t *end) {
    if (end - at < 4) return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_value(at[i]);
        if (digit < 0) return -1;
        value = value << 4 | digit;
    }
    return value;
}

inline uint8_t *put_scalar(uint8_t *out, uint32_t scalar) {
    if (scalar < 0x80) {
        *out++ = uint8_t(scalar);
    } else if (scalar < 0x800) {
        *out++ = uint8_t(0xc0 | scalar >> 6);
        *out++ = uint8_t(0x80 | (scalar & 0x3f));
    } else if (scalar < 0x10000) {
        *out++ = uint8_t(0xe0 | scalar >> 12);
        *out++ = uint8_t(0x80 | (scalar >> 6 & 0x3f));
        *out++ = uint8_t(0x80 | (scalar & 0x3f));
    } else {
        *out++ = uint8_t(0xf0 | scalar >> 18);
        *out++ = uint8_t(0x80 | (scalar >> 12 & 0x3f));
        *out++ = uint8_t(0x80 | (scalar >> 6 & 0x3f));
        *out++ = uint8_t(0x80 | (scalar & 0x3f));
    }
    return out;
}

// Orders keys by length, then bytes: any total order finds equals.
int compare(const uint8_t *text, const csimdjson_node &left, const csimdjson_node &right) {
    if (left.length != right.length) return left.length < right.length ? -1 : 1;
    return std::memcmp(text + left.offset, text + right.offset, left.length);
}

// Equal for equal keys, and seldom for others: the first eight bytes and the length. Behind the text is padding.
always_inline uint64_t mark(const uint8_t *text, const csimdjson_node &key) {
    uint64_t word;
    std::memcpy(&word, text + key.offset, 8);
    if (key.length < 8) word &= (uint64_t(1) << 8 * key.length) - 1;
    return word ^ uint64_t(key.length) << 56;
}

int has_duplicates(const csimdjson_node *nodes, const uint8_t *text, const csimdjson_node &object) {
    if (object.kind != CSIMDJSON_OBJECT) return 0;
    uint32_t members = object.length;
    if (members < 2) return 0;
    uint32_t few[pairwise_members];
    std::unique_ptr<uint32_t[]> many;
    uint32_t *keys = few;
    if (members > pairwise_members) {
        many.reset(new (std::nothrow) uint32_t[members]);
        if (!many) return -1;
        keys = many.get();
    }
    uint32_t key = uint32_t(&object - nodes) + 1;
    for (uint32_t i = 0; i < members; i++) {
        keys[i] = key;
        key = nodes[key + 1].next;
    }
    if (members <= pairwise_members) {
        // One bit of a word for each key seen: where a bit is set already, the keys are compared.
        uint64_t seen = 0;
        for (uint32_t i = 0; i < members; i++) {
            uint64_t bit = uint64_t(1) << (mark(text, nodes[keys[i]]) * 0x9e3779b97f4a7c15 >> 58);
            for (uint32_t j = 0; (seen & bit) && j < i; j++)
                if (compare(text, nodes[keys[i]], nodes[keys[j]]) == 0) return 1;
            seen |= bit;
        }
        return 0;
    }
    std::sort(keys, keys + members, [=](uint32_t a, uint32_t b) { return compare(text, nodes[a], nodes[b]) < 0; });
    for (uint32_t i = 1; i < members; i++)
        if (compare(text, nodes[keys[i - 1]], nodes[keys[i]]) == 0) return 1;
    return 0;
}

}  // namespace

struct csimdjson_parser {
    std::unique_ptr<Index> index;
    uint8_t *text = nullptr;
    size_t text_capacity = 0;
    csimdjson_node *nodes = nullptr;
    size_t node_capacity = 0;
    uint32_t node_count = 0;
    // Indexes of the containers that are open, outermost first.
    uint32_t *open = nullptr;
    size_t open_capacity = 0;
    size_t length = 0;
    bool saw_nul = false;
    // Whether a backslash stands anywhere in the text: where none does, no string has to be looked at.
    bool has_escapes = false;

    ~csimdjson_parser() { release(); }

    void release() {
        index.reset();
        std::free(text);
        std::free(nodes);
        std::free(open);
        text = nullptr;
        nodes = nullptr;
        open = nullptr;
        text_capacity = node_capacity = open_capacity = 0;
    }

    bool reserve(size_t wanted) {
        if (text_capacity > kept_capacity && wanted <= kept_capacity) release();
        if (text_capacity >= wanted + padding && index) return true;
        size_t capacity = wanted > first_capacity ? wanted : first_capacity;
        if (!grow(text, text_capacity, capacity + padding)) return false;
        // Our own stage keeps no state in the implementation, so its depth may be as small as it goes.
        if (!index) {
            return simdjson::get_active_implementation()->create_dom_parser_implementation(capacity, 1, index)
                == simdjson::SUCCESS;
        }
        return index->set_capacity(capacity) == simdjson::SUCCESS;
    }

    // Lays out the string whose quote stands at `at`. `limit` is where the next token starts: only white space stands
    // between it and the closing quote. Escapes are resolved in place; what they stand for is never longer.
    always_inline bool string(uint8_t *const bytes, size_t at, size_t limit, csimdjson_node &node) {
        size_t close = limit - 1;
        if (bytes[close] != '"') {
            while (close > at && is_space(bytes[close])) close--;
            // Holds always, since the first stage refuses unclosed strings; checked, because all below relies on it.
            if (bytes[close] != '"') return false;
        }
        if (close <= at) return false;
        node.kind = CSIMDJSON_STRING;
        node.offset = uint32_t(at + 1);
        node.length = uint32_t(close - at - 1);
        node.end = uint32_t(close + 1);
        return !has_escapes || unescape(node);
    }

    bool unescape(csimdjson_node &node) {
        uint8_t *start = text + node.offset;
        uint8_t *end = start + node.length;
        uint8_t *in = static_cast<uint8_t *>(std::memchr(start, '\\', size_t(end - start)));
        if (!in) return true;
        uint8_t *out = in;
        while (in < end) {
            if (*in != '\\') {
                *out++ = *in++;
                continue;
            }
            if (end - in < 2) return false;
            uint8_t escape = in[1];
            in += 2;
            switch (escape) {
            case '"': case '\\': case '/': *out++ = escape; break;
            case 'b': *out++ = '\b'; break;
            case 'f': *out++ = '\f'; break;
            case 'n': *out++ = '\n'; break;
            case 'r': *out++ = '\r'; break;
            case 't': *out++ = '\t'; break;
            case 'u': {
                int unit = hex_quad(in, end);
                if (unit < 0) return false;
                in += 4;
                uint32_t scalar = uint32_t(unit);
                if (scalar >= 0xdc00 && scalar <= 0xdfff) return false;
                if (scalar >= 0xd800 && scalar <= 0xdbff) {
                    if (end - in < 6 || in[0] != '\\' || in[1] != 'u') return false;
                    int low = hex_quad(in + 2, end);
                    if (low < 0xdc00 || low > 0xdfff) return false;
                    in += 6;
                    scalar = 0x10000 + ((scalar - 0xd800) << 10) + (uint32_t(low) - 0xdc00);
                }
                if (scalar == 0) saw_nul = true;
                out = put_scalar(out, scalar);
                break;
            }
            default: return false;
            }
        }
        node.length = uint32_t(out - start);
        return true;
    }

    int build(uint32_t max_depth) {
        const uint32_t *const tokens = index->structural_indexes.get();
        const uint32_t count = index->n_structural_indexes;
        if (!grow(nodes, node_capacity, count)) return CSIMDJSON_NO_MEMORY;
        // Bytes alias everything, so what is read through `this` would be read anew after each store.
        uint8_t *const bytes = text;
        const size_t size = length;
        csimdjson_node *const first = nodes;
        // Every node spends a token, so there is room.
        csimdjson_node *node = first;
        uint32_t made = 0;

        enum { want_value, want_key } state = want_value;
        size_t depth = 0;
        // The innermost container that is open.
        csimdjson_node *parent = nullptr;
        bool object = false;
        uint32_t token = 0;
        while (token < count) {
            size_t at = tokens[token++];
            if (at >= size) return CSIMDJSON_MALFORMED;
            size_t limit = token < count ? tokens[token] : size;
            if (state == want_key) {
                if (bytes[at] != '"' || !string(bytes, at, limit, *node)) return CSIMDJSON_MALFORMED;
                (node++)->next = ++made;
                if (token >= count || bytes[limit] != ':') return CSIMDJSON_MALFORMED;
                token++;
                state = want_value;
                continue;
            }
            switch (bytes[at]) {
            case '{':
            case '[': {
                if (depth >= max_depth) return CSIMDJSON_TOO_DEEP;
                if (depth >= open_capacity && !grow(open, open_capacity, depth < 16 ? 32 : depth * 2))
                    return CSIMDJSON_NO_MEMORY;
                open[depth++] = made++;
                parent = node;
                object = bytes[at] == '{';
                node->kind = object ? CSIMDJSON_OBJECT : CSIMDJSON_ARRAY;
                node->offset = uint32_t(at);
                node->length = 0;
                node++;
                if (token >= count) return CSIMDJSON_MALFORMED;
                if (bytes[limit] != (object ? '}' : ']')) {
                    node[-1].length = 1;
                    state = object ? want_key : want_value;
                    continue;
                }
                break;
            }
            case '"':
                if (!string(bytes, at, limit, *node)) return CSIMDJSON_MALFORMED;
                (node++)->next = ++made;
                break;
            default: {
                uint32_t kind;
                size_t end = scalar_end(bytes, size, at, kind);
                if (end == 0) return CSIMDJSON_MALFORMED;
                node->kind = kind;
                node->offset = uint32_t(at);
                node->length = uint32_t(end - at);
                node->end = uint32_t(end);
                (node++)->next = ++made;
                break;
            }
            }
            // A value has ended: close what ends with it, up to the comma that asks for another.
            while (true) {
                if (depth == 0) {
                    node_count = made;
                    return token == count ? CSIMDJSON_OK : CSIMDJSON_MALFORMED;
                }
                if (token >= count) return CSIMDJSON_MALFORMED;
                size_t place = tokens[token++];
                uint8_t mark = bytes[place];
                if (mark == ',') {
                    parent->length++;
                    state = object ? want_key : want_value;
                    break;
                }
                if (mark != (object ? '}' : ']')) return CSIMDJSON_MALFORMED;
                parent->next = made;
                parent->end = uint32_t(place + 1);
                if (--depth > 0) {
                    parent = first + open[depth - 1];
                    object = parent->kind == CSIMDJSON_OBJECT;
                }
            }
        }
        return CSIMDJSON_MALFORMED;
    }
};

csimdjson_parser *csimdjson_create(void) { return new (std::nothrow) csimdjson_parser; }

void csimdjson_destroy(csimdjson_parser *parser) { delete parser; }

int csimdjson_parse(
    csimdjson_parser *parser, const uint8_t *bytes, uint64_t length, uint32_t max_depth, int refuse_duplicates,
    csimdjson_document *document) {
    *document = csimdjson_document{nullptr, nullptr, 0};
    parser->node_count = 0;
    parser->length = 0;
    parser->saw_nul = false;
    if (length == 0 || length > max_length) return CSIMDJSON_MALFORMED;
    if (!parser->reserve(length)) {
        parser->release();
        return CSIMDJSON_NO_MEMORY;
    }
    std::memcpy(parser->text, bytes, length);
    std::memset(parser->text + length, 0, padding);
    parser->length = length;
    parser->has_escapes = std::memchr(bytes, '\\', length) != nullptr;
    int result = CSIMDJSON_MALFORMED;
    if (parser->index->stage1(parser->text, length, simdjson::stage1_mode::regular) == simdjson::SUCCESS)
        result = parser->build(max_depth);
    if (result == CSIMDJSON_OK && parser->saw_nul) result = CSIMDJSON_NUL;
    if (result == CSIMDJSON_OK && refuse_duplicates) {
        for (uint32_t i = 0; i < parser->node_count && result == CSIMDJSON_OK; i++) {
            int found = has_duplicates(parser->nodes, parser->text, parser->nodes[i]);
            if (found != 0) result = found < 0 ? CSIMDJSON_NO_MEMORY : CSIMDJSON_DUPLICATE;
        }
    }
    if (result != CSIMDJSON_OK) {
        parser->node_count = 0;
        return result;
    }
    *document = csimdjson_document{parser->nodes, parser->text, parser->node_count};
    return result;
}

int csimdjson_has_duplicates(const csimdjson_node *nodes, const uint8_t *text, const csimdjson_node *node) {
    return has_duplicates(nodes, text, *node);
}
