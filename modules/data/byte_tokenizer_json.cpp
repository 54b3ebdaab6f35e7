#include "data/byte_tokenizer_json.hpp"

#include <nlohmann/json.hpp>

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

// GPT-2's characters for bytes: a printable one stands for itself, the others follow from U+0100 on.
std::string character_of(int byte, int& next) {
    const bool own = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    const int code = own ? byte : next++;
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

Json byte_tokenizer() {
    Json vocabulary;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) vocabulary[character_of(byte, next)] = byte;
    const Json level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    const Json model = {{"type", "BPE"},
                        {"dropout", nullptr},
                        {"unk_token", nullptr},
                        {"continuing_subword_prefix", nullptr},
                        {"end_of_word_suffix", nullptr},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"vocab", vocabulary},
                        {"merges", Json::array()}};
    return {
        {"version", "1.0"},      {"truncation", nullptr},  {"padding", nullptr},        {"added_tokens", Json::array()},
        {"normalizer", nullptr}, {"pre_tokenizer", level}, {"post_processor", nullptr}, {"decoder", level},
        {"model", model}};
}

}  // namespace

std::string byte_tokenizer_json() {
    return byte_tokenizer().dump(2) + "\n";
}

bool is_byte_tokenizer_json(const std::string& text) {
    constexpr std::size_t longest = 1 << 16;  // of its text; other tokenizers' are longer
    return text.size() <= longest && Json::parse(text, nullptr, false) == byte_tokenizer();
}

}  // namespace lockstep::data
