#include "exchange/tokenizer.hpp"

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "data/tokenizer.hpp"
#include "exchange/folder.hpp"

namespace lockstep::exchange {
namespace {

constexpr const char *generation_file_name = "generation_config.json", *about_file_name = "tokenizer_config.json";

// Names that a folder needs for something else.
bool is_taken(const std::string& name) {
    return name == config_file_name || name == index_file_name || name.ends_with(".safetensors");
}

// GPT-2's characters for bytes: a printable one stands for itself, the others follow from U+0100 on.
std::string character_of(int byte, int& next) {
    const bool own = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
    const int code = own ? byte : next++;
    if (code < 0x80) return {static_cast<char>(code)};
    return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// The tokenizer "bytes" in the words of the tokenizers library: no merges, and each byte's number is the byte.
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

// In whatever order and spacing.
bool is_byte_tokenizer(const data::TokenizerFile& file) {
    constexpr std::size_t longest = 1 << 16;  // of its text; others are long
    return file.contents.size() <= longest && Json::parse(file.contents, nullptr, false) == byte_tokenizer();
}

}  // namespace

void read_tokenizer(const std::string& folder, checkpoint::Contents& contents) {
    contents.tokenizer_files = data::read_tokenizer_files(folder);
    const data::TokenizerFile* json = data::find_file(contents.tokenizer_files, data::huggingface_file_name);
    if (json && is_byte_tokenizer(*json)) {
        contents.tokenizer_kind = "bytes";
        contents.tokenizer_files.clear();
        return;
    }
    contents.tokenizer_kind = data::kind_of_files(contents.tokenizer_files);
}

void write_tokenizer(const std::string& folder, const checkpoint::Contents& contents) {
    for (const data::TokenizerFile& file : contents.tokenizer_files)
        if (!is_taken(file.name)) replace_file(folder + "/" + file.name, file.contents);
    if (contents.tokenizer_kind != "bytes") return;
    replace_file(folder + "/" + data::huggingface_file_name, byte_tokenizer().dump(2) + "\n");
    const Json about = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
    replace_file(folder + "/" + about_file_name, about.dump(2) + "\n");
}

void add_token_numbers(Json& config, const checkpoint::Contents& contents) {
    for (const char* key : {"bos_token_id", "eos_token_id"}) config[key] = nullptr;
    const data::TokenizerFile* generation = data::find_file(contents.tokenizer_files, generation_file_name);
    if (!generation && contents.tokenizer_kind.empty()) return;
    try {
        if (generation) {
            const Json given = parse_json_object(generation->contents, generation->name);
            for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
                if (given.contains(key)) config[key] = given[key];
        } else {
            const std::int32_t boundary =
                data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files)->boundary();
            if (boundary >= 0) config["eos_token_id"] = boundary;
        }
    } catch (const Error&) {
        // A tokenizer that this build does not have says nothing, nor does a damaged file.
    }
}

}  // namespace lockstep::exchange
