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

template <typename T> bool grow(T *&buffer, size_t &capacity, size_t wanted) {
    if (wanted <= capacity) return true;
    void *grown = std::realloc(buffer, wanted * sizeof(T));
    if (!grown) return false;
    buffer = static_cast<T *>(grown);
    capacity = wanted;
    return true;
}

inline bool is_space(uint8_t byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

inline bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

inline int hex_value(uint8_t byte) {
    if (is_digit(byte)) return byte - '0';
    if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
    if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
    return -1;
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

    // True when a scalar may end before `at`.
    bool ends(size_t at) const {
        if (at >= length) return true;
        uint8_t byte = text[at];
        return is_space(byte) || byte == ',' || byte == '}' || byte == ']';
    }

    bool literal(size_t at, const char *word, size_t size) const {
        return length - at >= size && std::memcmp(text + at, word, size) == 0 && ends(at + size);
    }

    // The end of the number at `at` (RFC 8259 §6), or 0.
    size_t number_end(size_t at) const {
        size_t i = at;
        if (text[i] == '-') i++;
        if (i >= length || !is_digit(text[i])) return 0;
        if (text[i] == '0') {
            i++;
        } else {
            while (i < length && is_digit(text[i])) i++;
        }
        if (i < length && text[i] == '.') {
            size_t first = ++i;
            while (i < length && is_digit(text[i])) i++;
            if (i == first) return 0;
        }
        if (i < length && (text[i] == 'e' || text[i] == 'E')) {
            i++;
            if (i < length && (text[i] == '+' || text[i] == '-')) i++;
            size_t first = i;
            while (i < length && is_digit(text[i])) i++;
            if (i == first) return 0;
        }
        return ends(i) ? i : 0;
    }

    // Lays out the string whose quote stands at `at`. `limit` is where the next token starts: only white space stands
    // between it and the closing quote. Escapes are resolved in place; what they stand for is never longer.
    bool string(size_t at, size_t limit, csimdjson_node &node) {
        size_t close = limit;
        do {
            if (close <= at + 1) return false;
            close--;
        } while (is_space(text[close]));
        // Holds always, since the first stage refuses unclosed strings; checked, because all below relies on it.
        if (text[close] != '"') return false;

        uint8_t *start = text + at + 1;
        uint8_t *end = text + close;
        node.kind = CSIMDJSON_STRING;
        node.offset = uint32_t(at + 1);
        uint8_t *in = static_cast<uint8_t *>(std::memchr(start, '\\', size_t(end - start)));
        if (!in) {
            node.length = uint32_t(end - start);
            return true;
        }
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
        const uint32_t *tokens = index->structural_indexes.get();
        const uint32_t count = index->n_structural_indexes;
        if (!grow(nodes, node_capacity, count)) return CSIMDJSON_NO_MEMORY;

        enum { want_value, want_key } state = want_value;
        size_t depth = 0;
        uint32_t token = 0;
        while (token < count) {
            size_t at = tokens[token++];
            if (at >= length) return CSIMDJSON_MALFORMED;
            size_t limit = token < count ? tokens[token] : length;
            // Every node spends a token, so there is room.
            csimdjson_node &node = nodes[node_count];
            if (state == want_key) {
                if (text[at] != '"' || !string(at, limit, node)) return CSIMDJSON_MALFORMED;
                node.next = ++node_count;
                if (token >= count || text[tokens[token]] != ':') return CSIMDJSON_MALFORMED;
                token++;
                state = want_value;
                continue;
            }
            switch (text[at]) {
            case '{':
            case '[': {
                bool object = text[at] == '{';
                if (depth >= max_depth) return CSIMDJSON_TOO_DEEP;
                if (depth >= open_capacity && !grow(open, open_capacity, depth < 16 ? 32 : depth * 2))
                    return CSIMDJSON_NO_MEMORY;
                open[depth++] = node_count++;
                node.kind = object ? CSIMDJSON_OBJECT : CSIMDJSON_ARRAY;
                node.offset = uint32_t(at);
                node.length = 0;
                if (token >= count) return CSIMDJSON_MALFORMED;
                if (text[tokens[token]] != (object ? '}' : ']')) {
                    node.length = 1;
                    state = object ? want_key : want_value;
                    continue;
                }
                break;
            }
            case '"':
                if (!string(at, limit, node)) return CSIMDJSON_MALFORMED;
                node.next = ++node_count;
                break;
            case 't':
            case 'f':
            case 'n': {
                bool valid = text[at] == 't' ? literal(at, "true", 4)
                    : text[at] == 'f'        ? literal(at, "false", 5)
                                             : literal(at, "null", 4);
                if (!valid) return CSIMDJSON_MALFORMED;
                node.kind = text[at] == 't' ? CSIMDJSON_TRUE : text[at] == 'f' ? CSIMDJSON_FALSE : CSIMDJSON_NULL;
                node.offset = uint32_t(at);
                node.length = 0;
                node.next = ++node_count;
                break;
            }
            default: {
                size_t end = number_end(at);
                if (end == 0) return CSIMDJSON_MALFORMED;
                node.kind = CSIMDJSON_NUMBER;
                node.offset = uint32_t(at);
                node.length = uint32_t(end - at);
                node.next = ++node_count;
                break;
            }
            }
            // A value has ended: close what ends with it, up to the comma that asks for another.
            while (true) {
                if (depth == 0) return token == count ? CSIMDJSON_OK : CSIMDJSON_MALFORMED;
                if (token >= count) return CSIMDJSON_MALFORMED;
                csimdjson_node &parent = nodes[open[depth - 1]];
                bool object = parent.kind == CSIMDJSON_OBJECT;
                uint8_t mark = text[tokens[token++]];
                if (mark == ',') {
                    parent.length++;
                    state = object ? want_key : want_value;
                    break;
                }
                if (mark != (object ? '}' : ']')) return CSIMDJSON_MALFORMED;
                parent.next = node_count;
                depth--;
            }
        }
        return CSIMDJSON_MALFORMED;
    }

    // Orders keys by length, then bytes: any total order finds equals.
    int compare(uint32_t a, uint32_t b) const {
        const csimdjson_node &left = nodes[a], &right = nodes[b];
        if (left.length != right.length) return left.length < right.length ? -1 : 1;
        return std::memcmp(text + left.offset, text + right.offset, left.length);
    }

    int has_duplicates(uint32_t object) const {
        if (object >= node_count || nodes[object].kind != CSIMDJSON_OBJECT) return 0;
        uint32_t members = nodes[object].length;
        if (members < 2) return 0;
        uint32_t few[pairwise_members];
        std::unique_ptr<uint32_t[]> many;
        uint32_t *keys = few;
        if (members > pairwise_members) {
            many.reset(new (std::nothrow) uint32_t[members]);
            if (!many) return -1;
            keys = many.get();
        }
        uint32_t key = object + 1;
        for (uint32_t i = 0; i < members; i++) {
            keys[i] = key;
            key = nodes[key + 1].next;
        }
        if (members <= pairwise_members) {
            for (uint32_t i = 1; i < members; i++)
                for (uint32_t j = 0; j < i; j++)
                    if (compare(keys[i], keys[j]) == 0) return 1;
            return 0;
        }
        std::sort(keys, keys + members, [this](uint32_t a, uint32_t b) { return compare(a, b) < 0; });
        for (uint32_t i = 1; i < members; i++)
            if (compare(keys[i - 1], keys[i]) == 0) return 1;
        return 0;
    }
};

csimdjson_parser *csimdjson_create(void) { return new (std::nothrow) csimdjson_parser; }

void csimdjson_destroy(csimdjson_parser *parser) { delete parser; }

int csimdjson_parse(
    csimdjson_parser *parser, const uint8_t *bytes, uint64_t length, uint32_t max_depth, int refuse_duplicates) {
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
    int result = CSIMDJSON_MALFORMED;
    if (parser->index->stage1(parser->text, length, simdjson::stage1_mode::regular) == simdjson::SUCCESS)
        result = parser->build(max_depth);
    if (result == CSIMDJSON_OK && parser->saw_nul) result = CSIMDJSON_NUL;
    if (result == CSIMDJSON_OK && refuse_duplicates) {
        for (uint32_t i = 0; i < parser->node_count && result == CSIMDJSON_OK; i++) {
            int found = parser->has_duplicates(i);
            if (found != 0) result = found < 0 ? CSIMDJSON_NO_MEMORY : CSIMDJSON_DUPLICATE;
        }
    }
    if (result != CSIMDJSON_OK) parser->node_count = 0;
    return result;
}

const csimdjson_node *csimdjson_nodes(const csimdjson_parser *parser) { return parser->nodes; }

uint32_t csimdjson_node_count(const csimdjson_parser *parser) { return parser->node_count; }

const uint8_t *csimdjson_text(const csimdjson_parser *parser) { return parser->text; }

int csimdjson_has_duplicates(const csimdjson_parser *parser, uint32_t index) { return parser->has_duplicates(index); }
