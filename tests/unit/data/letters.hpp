// A tokenizer that drops white space, so that documents may have no tokens.
#pragma once

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.hpp"

class Letters : public lockstep::data::Tokenizer {
  public:
    explicit Letters(std::int32_t boundary) : boundary_(boundary) {}
    std::string kind() const override { return "bytes"; }  // the only kind without files
    const lockstep::data::TokenizerFiles& files() const override { return files_; }
    std::int64_t vocabulary() const override { return 256; }
    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> tokens;
        for (const char byte : text)
            if (!std::isspace(static_cast<unsigned char>(byte))) tokens.push_back(static_cast<unsigned char>(byte));
        return tokens;
    }
    std::vector<std::int32_t> encode_continued(std::string_view text) const override { return encode(text); }
    std::string decode(const std::vector<std::int32_t>& tokens) const override {
        return {tokens.begin(), tokens.end()};
    }
    std::int32_t boundary() const override { return boundary_; }

  private:
    std::int32_t boundary_;
    lockstep::data::TokenizerFiles files_;
};
