// Text to tokens and back. "bytes": token = byte, exactly 256 of them. "sentencepiece": a model file (also Llama's).
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
    virtual std::string decode(const std::vector<std::int32_t>& tokens) const = 0;
};

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const std::string& model);  // as kept in files
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);  // "bytes" or the path of a .model file

}  // namespace lockstep::data
