// Text to tokens and back. "bytes": one token per byte, 256 in all. "sentencepiece": a model file (such as Llama 2's).
// "huggingface": a tokenizer.json with byte-level BPE (such as GPT-2's, Llama 3's, Qwen's). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer_files.hpp"

namespace lockstep::data {

class PartEncoder;

class Tokenizer {
  public:
    Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;
    virtual ~Tokenizer() = default;
    virtual std::string kind() const = 0;             // "bytes" | "sentencepiece" | "huggingface"
    virtual const TokenizerFiles& files() const = 0;  // that it was made from; none for bytes
    virtual std::int64_t vocabulary() const = 0;
    // Bytes per token, in files and memory: 1, 2, or 4 if the vocabulary exceeds 65,536.
    virtual std::size_t token_width() const { return vocabulary() <= 65536 ? 2 : 4; }
    // Whether each byte of a text is the token of that number, and the boundary is 0: nothing needs to be encoded.
    virtual bool tokens_are_bytes() const { return false; }
    // Adds no special tokens. Those that stand in the text itself are recognised by huggingface only, as its own
    // library does; it takes invalid UTF-8 for U+FFFD.
    virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    // Continues a document from where the previous call ended; best called at a newline, where the space that some
    // models prepend to a text does no harm.
    virtual std::vector<std::int32_t> encode_continued(std::string_view text) const = 0;
    // Tokens outside the vocabulary (from a model with a larger one) become replacement characters.
    virtual std::string decode(const std::vector<std::int32_t>& tokens) const = 0;
    // The token between documents: 0 for bytes; else the end-of-sequence or beginning-of-sequence token; -1: none.
    virtual std::int32_t boundary() const = 0;
    // For dividing documents among threads exactly; null: they are cut at newlines, with encode_continued.
    virtual const PartEncoder* parts() const { return nullptr; }
};

bool has_sentencepiece();  // in this build
bool has_huggingface();

// A tokenizer from a token file or checkpoint. Unreadable or missing files: damaged error. Unknown kind, or
// one that this build lacks: usage error.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerFiles& files);
// What the files of a folder are a tokenizer of: "huggingface" where there is a tokenizer.json ("bytes" if it says just
// that), "sentencepiece" where there is a tokenizer.model and no tokenizer.json that this build reads as far as it
// reads any, else "".
std::string kind_of_files(const TokenizerFiles& files);
// "bytes", a sentencepiece .model file, a tokenizer.json, a folder with either, or a token file, for its tokenizer.
// Missing: usage error.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

}  // namespace lockstep::data
