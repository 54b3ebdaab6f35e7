#include "data/huggingface/split_pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.hpp"
#include "data/huggingface/pattern_syntax.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::uint32_t most_steps = 10'000'000, most_heap_kib = 64 * 1024;
constexpr std::size_t jit_stack_least = 32 * 1024, jit_stack_most = 1024 * 1024;

std::string message_of(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

template <class Pointer>
Pointer* made(Pointer* pointer) {
    if (!pointer) throw fault_error("out of memory for matching patterns");
    return pointer;
}

}  // namespace

class SplitPattern::Scratch {
  public:
    Scratch() {
        pcre2_set_match_limit(context_.get(), most_steps);
        pcre2_set_heap_limit(context_.get(), most_heap_kib);
        if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    }
    pcre2_match_data* data() { return data_.get(); }
    pcre2_match_context* context() { return context_.get(); }

  private:
    template <auto free>
    struct Free {
        template <class Object>
        void operator()(Object* object) const {
            free(object);
        }
    };
    std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data_{made(pcre2_match_data_create(1, nullptr))};
    std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_{
        made(pcre2_match_context_create(nullptr))};
    // None where PCRE2 was built without its compiler.
    std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack_{
        pcre2_jit_stack_create(jit_stack_least, jit_stack_most, nullptr)};
};

void SplitPattern::ScratchDeleter::operator()(Scratch* scratch) const {
    delete scratch;
}

std::unique_ptr<SplitPattern::Scratch, SplitPattern::ScratchDeleter> SplitPattern::make_scratch() {
    return std::unique_ptr<Scratch, ScratchDeleter>(new Scratch);
}

void SplitPattern::CodeDeleter::operator()(pcre2_code* code) const {
    pcre2_code_free(code);
}

SplitPattern::SplitPattern(const std::string& pattern, bool literal, const std::string& key) : key_(key) {
    const std::string translated = literal ? pattern : pcre2_syntax(pattern, key);
    const std::uint32_t options =
        PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE);
    int problem = 0;
    std::size_t at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &problem,
                              &at, nullptr));
    if (!code_) throw damaged_error("{} is not a pattern: {}", key, message_of(problem));
    std::uint32_t may_be_empty = 0, looks_back = 0;
    pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &may_be_empty);
    pcre2_pattern_info(code_.get(), PCRE2_INFO_MAXLOOKBEHIND, &looks_back);
    if (may_be_empty) throw usage_error("{} matches the empty text, which is not implemented", key);
    LOCKSTEP_ASSERT(looks_back == 0);
    // Without the compiler PCRE2 interprets, which is slower.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
}

SplitPattern::Result SplitPattern::find(std::string_view text, std::size_t from, bool open, Scratch& scratch) const {
    const auto match = [&](std::uint32_t more) {
        return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                           PCRE2_NO_UTF_CHECK | (open ? PCRE2_PARTIAL_HARD : 0) | more, scratch.data(),
                           scratch.context());
    };
    int found = match(0);
    // A repeated group over a long run; interpreted, it takes what the heap limit allows.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
    const std::size_t* ends = pcre2_get_ovector_pointer(scratch.data());
    if (found >= 0) return {Found::match, ends[0], ends[1]};
    if (found == PCRE2_ERROR_NOMATCH) return {};
    if (found == PCRE2_ERROR_PARTIAL) return {Found::open, ends[0], text.size()};
    throw usage_error("{} cannot be matched with this text: {}", key_, message_of(found));
}

}  // namespace lockstep::data::huggingface
