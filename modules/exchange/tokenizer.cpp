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

constexpr const char* generation_file_name = "generation_config.json";
// In the order of their names.
constexpr std::array<const char*, 9> kept_names = {"added_tokens.json", "chat_template.jinja",     generation_file_name,
                                                   "merges.txt",        "special_tokens_map.json", "tokenizer.json",
                                                   "tokenizer.model",   "tokenizer_config.json",   "vocab.json"};

const data::TokenizerFile* find(const data::TokenizerFiles& files, const std::string& name) {
    const auto found = std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.name == name; });
    return found == files.end() ? nullptr : &*found;
}

// Names that a folder needs for something else.
bool is_taken(const std::string& name) {
    return name == config_file_name || name == index_file_name || name.ends_with(".safetensors");
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
    contents.tokenizer_kind = find(contents.tokenizer_files, "tokenizer.json")    ? "huggingface"
                              : find(contents.tokenizer_files, "tokenizer.model") ? "sentencepiece"
                                                                                  : "";
}

void write_tokenizer(const std::string& folder, const checkpoint::Contents& contents) {
    for (const data::TokenizerFile& file : contents.tokenizer_files)
        if (!is_taken(file.name)) replace_file(folder + "/" + file.name, file.contents);
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
