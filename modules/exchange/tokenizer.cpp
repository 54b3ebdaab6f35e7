#include "exchange/tokenizer.hpp"

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "data/byte_tokenizer_json.hpp"
#include "data/tokenizer.hpp"
#include "exchange/folder.hpp"

namespace lockstep::exchange {
namespace {

constexpr const char *generation_file_name = "generation_config.json", *about_file_name = "tokenizer_config.json";

// Names that a folder needs for something else.
bool is_taken(const std::string& name) {
    return name == config_file_name || name == index_file_name || name.ends_with(".safetensors");
}

}  // namespace

void read_tokenizer(const std::string& folder, checkpoint::Contents& contents) {
    contents.tokenizer_files = data::read_tokenizer_files(folder);
    contents.tokenizer_kind = data::kind_of_files(contents.tokenizer_files);
    if (contents.tokenizer_kind == "bytes") contents.tokenizer_files.clear();
}

void write_tokenizer(const std::string& folder, const checkpoint::Contents& contents) {
    for (const data::TokenizerFile& file : contents.tokenizer_files)
        if (!is_taken(file.name)) replace_file(folder + "/" + file.name, file.contents);
    if (contents.tokenizer_kind != "bytes") return;
    replace_file(folder + "/" + data::huggingface_file_name, data::byte_tokenizer_json());
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
