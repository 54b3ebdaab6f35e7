#include "data/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"
#include "data/mapped_file.hpp"
#include "data/sentencepiece.hpp"

namespace lockstep::data {
namespace {

class ByteTokenizer final : public Tokenizer {
  public:
    std::string kind() const override { return "bytes"; }
    const TokenizerFiles& files() const override { return files_; }
    std::int64_t vocabulary() const override { return 256; }
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

#ifndef LOCKSTEP_SENTENCEPIECE
namespace {
Error without_sentencepiece() {
    return usage_error(
        "this lockstep was built without sentencepiece and has only the tokenizer \"bytes\"; install "
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
    throw usage_error("unknown tokenizer kind '{}'; use bytes or sentencepiece", kind);
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
    if (name == "bytes") return make_tokenizer("bytes", {});
    std::error_code problem;
    if (!std::filesystem::exists(name, problem))
        throw usage_error("the tokenizer {} does not exist; it is \"bytes\" or the path of a sentencepiece .model file",
                          name);
    const MappedFile file(name);
    return make_sentencepiece(std::string(reinterpret_cast<const char*>(file.data()), file.bytes()), name);
}

}  // namespace lockstep::data
