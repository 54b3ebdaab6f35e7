#include "data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "data/huggingface/tokenizer.hpp"
#include "data/mapped_file.hpp"
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
        "{} needs PCRE2 and utf8proc, without which this lockstep was built; install them (Debian: libpcre2-dev "
        "libutf8proc-dev) and rebuild",
        origin);
}
#endif

#ifndef LOCKSTEP_SENTENCEPIECE
namespace {
Error without_sentencepiece() {
    return usage_error(
        "this lockstep was built without sentencepiece and has no tokenizers of that kind; install "
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
        if (files.size() != 1)
            throw damaged_error("a stored sentencepiece tokenizer has {} files; it is one model", files.size());
        return make_sentencepiece(files.front().contents, "the stored sentencepiece model");
    }
    if (kind == "huggingface") return make_huggingface(files, "the stored tokenizer.json");
    throw usage_error("unknown tokenizer kind '{}'; use bytes, sentencepiece or huggingface", kind);
}

namespace {

namespace fs = std::filesystem;

std::string read_bounded(const fs::path& path) {
    const MappedFile file(path.string());
    if (file.bytes() > most_tokenizer_bytes)
        throw usage_error("{} has {} bytes, too many for a tokenizer; {} are the most", path.string(), file.bytes(),
                          most_tokenizer_bytes);
    return {reinterpret_cast<const char*>(file.data()), file.bytes()};
}

// tokenizer.json and what lies beside it.
std::unique_ptr<Tokenizer> open_huggingface(const fs::path& path) {
    TokenizerFiles files = {{"tokenizer.json", read_bounded(path)}};
    std::uint64_t bytes = files.front().contents.size();
    for (const char* name : {"added_tokens.json", "chat_template.jinja", "generation_config.json", "merges.txt",
                             "special_tokens_map.json", "tokenizer_config.json", "vocab.json"}) {
        const fs::path beside = path.parent_path() / name;
        std::error_code problem;
        if (!fs::is_regular_file(beside, problem)) continue;
        files.push_back({name, read_bounded(beside)});
        bytes += files.back().contents.size();
    }
    if (bytes > most_tokenizer_bytes)
        throw usage_error("the files of the tokenizer {} exceed {} bytes", path.string(), most_tokenizer_bytes);
    return make_huggingface(std::move(files), path.string());
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
    if (name == "bytes") return make_tokenizer("bytes", {});
    fs::path path = name;
    std::error_code problem;
    if (fs::is_directory(path, problem)) {
        const fs::path folder = path;
        path = folder / "tokenizer.json";
        if (!fs::exists(path, problem)) path = folder / sentencepiece_file_name;
        if (!fs::exists(path, problem))
            throw usage_error("the folder {} has neither tokenizer.json nor {}", name, sentencepiece_file_name);
    }
    if (!fs::exists(path, problem))
        throw usage_error(
            "the tokenizer {} does not exist; it is \"bytes\", a sentencepiece .model file, a tokenizer.json, a "
            "folder with either, or a token file",
            name);
    if (path.extension() == ".json") return open_huggingface(path);
    if (hdf5::has_signature(path.string())) {
        const TokenFileInfo kept = read_token_file_info(path.string());
        return make_tokenizer(kept.tokenizer_kind, kept.tokenizer_files);
    }
    return make_sentencepiece(read_bounded(path), path.string());
}

}  // namespace lockstep::data
