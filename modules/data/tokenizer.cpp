#include "data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "data/byte_tokenizer_json.hpp"
#include "data/huggingface/tokenizer.hpp"
#include "data/sentencepiece.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::data {
namespace {

class ByteTokenizer final : public Tokenizer {
  public:
    std::string kind() const override { return "bytes"; }
    const TokenizerFiles& files() const override { return files_; }
    std::int64_t vocabulary() const override { return 256; }
    std::size_t token_width() const override { return 1; }
    bool tokens_are_bytes() const override { return true; }
    std::int32_t boundary() const override { return 0; }

    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> tokens(text.size());
        std::transform(text.begin(), text.end(), tokens.begin(),
                       [](char byte) { return static_cast<std::int32_t>(static_cast<unsigned char>(byte)); });
        return tokens;
    }

    std::vector<std::int32_t> encode_continued(std::string_view text) const override { return encode(text); }

    std::string decode(const std::vector<std::int32_t>& tokens) const override {
        std::string text;
        text.reserve(tokens.size());
        for (const auto token : tokens) {
            if (token >= 0 && token < 256)
                text += static_cast<char>(token);
            else
                text += "\xEF\xBF\xBD";  // U+FFFD
        }
        return text;
    }

  private:
    TokenizerFiles files_;
};

}  // namespace

bool has_sentencepiece() {
#ifdef LOCKSTEP_SENTENCEPIECE
    return true;
#else
    return false;
#endif
}

bool has_huggingface() {
#ifdef LOCKSTEP_HUGGINGFACE
    return true;
#else
    return false;
#endif
}

#ifndef LOCKSTEP_HUGGINGFACE
std::unique_ptr<Tokenizer> make_huggingface(TokenizerFiles, const std::string& origin) {
    throw usage_error(
        "{} needs PCRE2 and utf8proc, but this lockstep was built without them; install them (Debian: libpcre2-dev "
        "libutf8proc-dev) and rebuild",
        origin);
}
#endif

#ifndef LOCKSTEP_SENTENCEPIECE
namespace {
Error without_sentencepiece() {
    return usage_error(
        "this lockstep was built without sentencepiece and cannot use such tokenizers; install "
        "sentencepiece (Debian: libsentencepiece-dev) and rebuild");
}
}  // namespace
std::unique_ptr<Tokenizer> make_sentencepiece(const std::string&, const std::string&) {
    throw without_sentencepiece();
}
std::string train_sentencepiece(const TextFiles&, std::int64_t, bool) {
    throw without_sentencepiece();
}
#endif

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerFiles& files) {
    if (kind == "bytes") return std::make_unique<ByteTokenizer>();
    if (kind == "sentencepiece") {
        // In older files the model has whatever name, and is the only file.
        const TokenizerFile* model = files.size() == 1 ? files.data() : find_file(files, sentencepiece_file_name);
        if (!model)
            throw damaged_error("a stored sentencepiece tokenizer has {} files, none of them {}", files.size(),
                                sentencepiece_file_name);
        return make_sentencepiece(model->contents, "the stored sentencepiece model");
    }
    if (kind == "huggingface") return make_huggingface(files, "the stored tokenizer.json");
    throw usage_error("unknown tokenizer kind '{}'; use bytes, sentencepiece or huggingface", kind);
}

namespace {

namespace fs = std::filesystem;

// Llama 2's and Mistral's tokenizer.json mean the model beside them, in a form that is not implemented here.
bool is_implemented(const TokenizerFiles& files) {
    try {
        static_cast<void>(make_huggingface(files, huggingface_file_name));
        return true;
    } catch (const Error& error) {
        return error.code() != ExitCode::usage;  // damage is for whoever makes the tokenizer
    }
}

std::unique_ptr<Tokenizer> open_files(TokenizerFiles files, const std::string& kind, const std::string& origin) {
    if (kind == "huggingface") return make_huggingface(std::move(files), origin);
    if (kind == "sentencepiece") return make_sentencepiece(find_file(files, sentencepiece_file_name)->contents, origin);
    return make_tokenizer("bytes", {});
}

std::unique_ptr<Tokenizer> open_folder(const fs::path& folder) {
    TokenizerFiles files = read_tokenizer_files(folder.string());
    const std::string kind = kind_of_files(files);
    if (kind.empty())
        throw usage_error("the folder {} has neither {} nor {}", folder.string(), huggingface_file_name,
                          sentencepiece_file_name);
    const char* name = kind == "sentencepiece" ? sentencepiece_file_name : huggingface_file_name;
    return open_files(std::move(files), kind, (folder / name).string());
}

}  // namespace

std::string kind_of_files(const TokenizerFiles& files) {
    const bool model = find_file(files, sentencepiece_file_name) != nullptr;
    const TokenizerFile* json = find_file(files, huggingface_file_name);
    if (!json) return model ? "sentencepiece" : "";
    if (is_byte_tokenizer_json(json->contents)) return "bytes";
    return model && has_huggingface() && !is_implemented(files) ? "sentencepiece" : "huggingface";
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
    if (name == "bytes") return make_tokenizer("bytes", {});
    const fs::path path = name;
    std::error_code problem;
    if (fs::is_directory(path, problem)) return open_folder(path);
    if (!fs::exists(path, problem))
        throw usage_error(
            "the tokenizer {} does not exist; give \"bytes\", a sentencepiece .model file, a tokenizer.json, a "
            "folder with either, or a token file",
            name);
    if (path.extension() == ".json") {
        TokenizerFiles files = read_tokenizer_files(path.parent_path().string(), name);
        const bool is_bytes = is_byte_tokenizer_json(find_file(files, huggingface_file_name)->contents);
        return open_files(std::move(files), is_bytes ? "bytes" : "huggingface", name);
    }
    if (hdf5::has_signature(name)) {
        const TokenFileInfo kept = read_token_file_info(name);
        return make_tokenizer(kept.tokenizer_kind, kept.tokenizer_files);
    }
    return make_sentencepiece(read_tokenizer_file(name), name);
}

}  // namespace lockstep::data
