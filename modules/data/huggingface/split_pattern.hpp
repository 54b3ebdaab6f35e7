// A pattern that divides text, compiled by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace lockstep::data::huggingface {

class SplitPattern {
  public:
    // Where matches are put, and memory for matching: one per thread.
    class Scratch;
    struct ScratchDeleter {
        void operator()(Scratch* scratch) const;
    };
    static std::unique_ptr<Scratch, ScratchDeleter> make_scratch();

    // A regular expression in Oniguruma's syntax or, if `literal`, the text itself. `key` names it in errors. Usage
    // errors: what is not implemented, or a pattern that matches the empty text. Damaged error: no pattern.
    SplitPattern(const std::string& pattern, bool literal, const std::string& key);

    enum class Found { nothing, match, open };
    struct Result {
        Found found = Found::nothing;
        std::size_t begin = 0, end = 0;
    };
    // The first match in `text`, valid UTF-8, from `from` on. `open`: the text continues after its end; if the first
    // match would depend on how, `open` is found, and `begin` is where it may begin.
    Result find(std::string_view text, std::size_t from, bool open, Scratch& scratch) const;

  private:
    struct CodeDeleter {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::unique_ptr<pcre2_real_code_8, CodeDeleter> code_;
    std::string key_;
};

}  // namespace lockstep::data::huggingface
