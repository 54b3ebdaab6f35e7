// tokenizer.json, read and checked. Whatever would change a token and is not implemented is refused by its key.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::data::huggingface {

struct AddedToken {
    std::string content;
    std::int32_t id = 0;
    bool single_word = false;        // only where no letter, mark or digit is next to it
    bool lstrip = false;             // takes the white space before it,
    bool rstrip = false;             // and behind it
    bool before_normalizing = true;  // looked for before the text is normalized
};

enum class Behaviour { isolated, removed, contiguous, merged_with_previous, merged_with_next };

// One division of each piece of the text into smaller ones.
struct Division {
    std::string pattern;   // "": none
    bool literal = false;  // not a regular expression
    bool invert = false;
    Behaviour behaviour = Behaviour::isolated;
    bool adds_space = false;  // first puts a space before a piece that does not begin with one
    std::string key;          // the file and where in it, for errors
};

struct Merge {
    std::int32_t left = 0, right = 0, merged = 0;
};

struct TokenizerJson {
    bool composes = false;  // normalization form C
    std::vector<AddedToken> added;
    std::vector<Division> divisions;
    std::unordered_map<std::string, std::int32_t> vocabulary;  // as spelt in the file
    std::vector<Merge> merges;                                 // by rank
    std::int32_t unknown = -1;
    bool fuses_unknown = false;   // neighbouring unknown bytes are one token
    bool ignores_merges = false;  // for pieces that are in the vocabulary
};

// `origin` names the file in errors. Damaged error: not JSON, a value missing or of the wrong type, too many or too
// large values, merges of unknown tokens. Usage error: what is not implemented.
TokenizerJson read_tokenizer_json(const std::string& text, const std::string& origin);

// The token that ends a document by tokenizer_config.json or special_tokens_map.json; "" if they do not say.
// Not JSON: damaged error.
std::string end_token(const std::string& text, const std::string& origin);

}  // namespace lockstep::data::huggingface
