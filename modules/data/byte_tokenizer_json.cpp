#include "data/byte_tokenizer_json.hpp"

#include <nlohmann/json.hpp>

#include "data/huggingface/byte_level.hpp"

namespace lockstep::data {
namespace {

using Json = nlohmann::json;

Json byte_tokenizer() {
    Json vocabulary;
    for (int byte = 0; byte < 256; ++byte)
        vocabulary[huggingface::spelling_of(static_cast<unsigned char>(byte))] = byte;
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
