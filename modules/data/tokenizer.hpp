// Text to tokens and back. "bytes": token = byte, exactly 256 of them. "sentencepiece": a model file (also Llama's).
// Every method is const and may be called from several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

class Tokenizer {
  public:
    Tokenizer() = default;
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;
    virtual ~Tokenizer() = default;
    virtual std::string kind() const = 0;          // "bytes" | "sentencepiece"
    virtual const std::string& model() const = 0;  // the model file's bytes; "" for bytes
    virtual std::int64_t vocabulary() const = 0;
    virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    // Text that goes on where an earlier piece of the same document ended; a piece best begins with a newline, for then
    // no space that a model puts before a text slips in between.
    virtual std::vector<std::int32_t> encode_continued(std::string_view text) const = 0;
    // Tokens outside the vocabulary, which a model with a larger one may give, come out as a replacement mark.
    virtual std::string decode(const std::vector<std::int32_t>& tokens) const = 0;
    // The token between documents: 0 for bytes; a model's end-of-sequence or else begin-of-sequence token; -1: none.
    virtual std::int32_t boundary() const = 0;
};

bool has_sentencepiece();  // in this build

// A tokenizer as kept in token files and checkpoints. A model that cannot be read: damaged error. An unknown kind, or
// sentencepiece in a build without it: usage error.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const std::string& model);
// "bytes" or the path of a .model file; no such file: usage error.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

}  // namespace lockstep::data
