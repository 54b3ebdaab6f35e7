#include "exchange/tokenizer.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "base/open_file.hpp"
#include "base/whole_file.hpp"
#include "cluster/agree.hpp"
#include "data/tokenizer.hpp"
#include "exchange/folder.hpp"

namespace lockstep::exchange {
namespace {

namespace fs = std::filesystem;

constexpr const char *generation_file_name = "generation_config.json", *tokenizer_file_name = "tokenizer.json",
                     *about_file_name = "tokenizer_config.json";
// In the order of their names.
constexpr std::array<const char*, 9> kept_names = {"added_tokens.json", "chat_template.jinja",     generation_file_name,
                                                   "merges.txt",        "special_tokens_map.json", tokenizer_file_name,
                                                   "tokenizer.model",   about_file_name,           "vocab.json"};

const data::TokenizerFile* find(const data::TokenizerFiles& files, const std::string& name) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
    return found == files.end() ? nullptr : &*found;
}

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
std::string byte_tokenizer_text() {
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
    const Json whole = {
        {"version", "1.0"},      {"truncation", nullptr},  {"padding", nullptr},        {"added_tokens", Json::array()},
        {"normalizer", nullptr}, {"pre_tokenizer", level}, {"post_processor", nullptr}, {"decoder", level},
        {"model", model}};
    return whole.dump(2) + "\n";
}

}  // namespace

void read_tokenizer(const std::string& folder, checkpoint::Contents& contents) {
    std::uint64_t left = data::most_tokenizer_bytes;
    for (const char* name : kept_names) {
        const std::string path = folder + "/" + name;
        std::error_code ignored;
        if (!fs::is_regular_file(path, ignored)) continue;
        const OpenFile file = OpenFile::for_reading(path);
        const std::uint64_t bytes = file.bytes();
        if (bytes > left)
            throw usage_error("the tokenizer's files in {} have more than {} bytes, of which {} has {}", folder,
                              data::most_tokenizer_bytes, name, bytes);
        left -= bytes;
        if (bytes == 0) continue;  // means nothing to any program
        std::string text(bytes, '\0');
        file.read(text.data(), bytes, 0);
        contents.tokenizer_files.push_back({name, std::move(text)});
    }
    const data::TokenizerFile* tokenizer = find(contents.tokenizer_files, tokenizer_file_name);
    if (tokenizer && tokenizer->contents == byte_tokenizer_text()) {
        contents.tokenizer_kind = "bytes";
        contents.tokenizer_files.clear();
        return;
    }
    contents.tokenizer_kind = tokenizer                                           ? "huggingface"
                              : find(contents.tokenizer_files, "tokenizer.model") ? "sentencepiece"
                                                                                  : "";
}

void write_tokenizer(const std::string& folder, const checkpoint::Contents& contents) {
    for (const data::TokenizerFile& file : contents.tokenizer_files)
        if (!is_taken(file.name)) replace_file(folder + "/" + file.name, file.contents);
    if (contents.tokenizer_kind != "bytes") return;
    replace_file(folder + "/" + tokenizer_file_name, byte_tokenizer_text());
    const Json about = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
    replace_file(folder + "/" + about_file_name, about.dump(2) + "\n");
}

void add_token_numbers(Json& config, const checkpoint::Contents& contents) {
    for (const char* key : {"bos_token_id", "eos_token_id"}) config[key] = nullptr;
    if (const data::TokenizerFile* generation = find(contents.tokenizer_files, generation_file_name)) {
        Json given;
        const auto unreadable =
            cluster::caught([&] { given = parse_json_object(generation->contents, generation->name); });
        if (unreadable) return;
        for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
            if (given.contains(key)) config[key] = given[key];
        return;
    }
    // A tokenizer that this build does not have says nothing.
    static_cast<void>(cluster::caught([&] {
        if (contents.tokenizer_kind.empty()) return;
        const std::int32_t boundary =
            data::make_tokenizer(contents.tokenizer_kind, contents.tokenizer_files)->boundary();
        if (boundary >= 0) config["eos_token_id"] = boundary;
    }));
}

}  // namespace lockstep::exchange
