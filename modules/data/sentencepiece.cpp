#include "data/sentencepiece.hpp"

#include <sentencepiece_processor.h>

#include <exception>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

class SentencePieceTokenizer final : public Tokenizer {
  public:
    SentencePieceTokenizer(const std::string& model, const std::string& origin)
        : files_{{sentencepiece_file_name, model}} {
        if (!loads(model)) throw damaged_error("{} is not a sentencepiece model", origin);
        const auto probe = encode("\n");
        if (probe.size() > 1 && processor_.IdToPiece(probe.front()) == "\xE2\x96\x81") leading_space_ = probe.front();
    }

    std::string kind() const override { return "sentencepiece"; }
    const TokenizerFiles& files() const override { return files_; }
    std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }
    std::int32_t boundary() const override {
        return processor_.eos_id() >= 0 ? processor_.eos_id() : processor_.bos_id();
    }

    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<int> tokens;
        const auto status = processor_.Encode(text, &tokens);
        if (!status.ok()) throw fault_error("sentencepiece could not tokenize the text: {}", status.ToString());
        return tokens;
    }

    std::vector<std::int32_t> encode_continued(std::string_view text) const override {
        auto tokens = encode(text);
        // The space that the model prepends to every text: before a newline it is a token of its own and can be
        // removed.
        const bool begins_with_it = !tokens.empty() && tokens.front() == leading_space_;
        if (leading_space_ >= 0 && !text.empty() && text.front() == '\n' && begins_with_it)
            tokens.erase(tokens.begin());
        return tokens;
    }

    std::string decode(const std::vector<std::int32_t>& tokens) const override {
        std::vector<int> known(tokens);
        for (auto& token : known)
            if (token < 0 || token >= processor_.GetPieceSize()) token = processor_.unk_id();
        std::erase_if(known, [](int token) { return token < 0; });  // where the model has no unknown piece
        std::string text;
        const auto status = processor_.Decode(known, &text);
        if (!status.ok()) throw fault_error("sentencepiece could not decode tokens into text: {}", status.ToString());
        return text;
    }

  private:
    // Some models, such as one with an empty piece, end in an exception of a library below it.
    bool loads(const std::string& model) {
        try {
            return processor_.LoadFromSerializedProto(model).ok() && processor_.GetPieceSize() > 0;
        } catch (const std::exception&) {
            return false;
        }
    }

    TokenizerFiles files_;
    sentencepiece::SentencePieceProcessor processor_;
    std::int32_t leading_space_ = -1;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece(const std::string& model, const std::string& origin) {
    return std::make_unique<SentencePieceTokenizer>(model, origin);
}

}  // namespace lockstep::data
