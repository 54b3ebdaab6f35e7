#include "data/huggingface/normal_form.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::int32_t code_points = 0x110000, first_unstable_lead = 0xCC;  // the first that is not stable: U+0300
constexpr std::size_t longest_decomposition = 16;                           // of one character; Unicode has 4
constexpr std::string_view replacement = "\xEF\xBF\xBD";

using Decomposition = std::array<utf8proc_int32_t, longest_decomposition>;

std::size_t decompose(std::int32_t code, Decomposition& out) {
    int last_boundary = 0;
    const auto count = utf8proc_decompose_char(code, out.data(), out.size(), UTF8PROC_DECOMPOSE, &last_boundary);
    LOCKSTEP_ASSERT(count > 0 && count <= static_cast<utf8proc_ssize_t>(out.size()));
    return static_cast<std::size_t>(count);
}

int combining_class(std::int32_t code) {
    return utf8proc_get_property(code)->combining_class;
}

// Sorts marks and composes, in place. utf8proc's own sort takes quadratic time.
void compose(std::vector<utf8proc_int32_t>& codes) {
    for (auto begin = codes.begin(); begin != codes.end();) {
        if (combining_class(*begin) == 0) {
            ++begin;
            continue;
        }
        const auto end = std::find_if(begin, codes.end(), [](auto code) { return combining_class(code) == 0; });
        std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        begin = end;
    }
    constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    const auto count = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
    LOCKSTEP_ASSERT(count >= 0);
    codes.resize(static_cast<std::size_t>(count));
}

// The characters that begin a run of which neither the form nor that of the text before depends on the other.
class StableCharacters {
  public:
    StableCharacters() : stable_(std::make_unique<std::bitset<code_points>>()) {
        const auto later =
            std::make_unique<std::bitset<code_points>>();  // what stands behind another in a decomposition
        Decomposition parts;
        for (std::int32_t code = 0; code < code_points; ++code) {
            const std::size_t count = decompose_if_any(code, parts);
            for (std::size_t i = 1; i < count; ++i) later->set(static_cast<std::size_t>(parts[i]));
        }
        std::vector<utf8proc_int32_t> composed;
        for (std::int32_t code = 0; code < code_points; ++code) {
            const std::size_t count = decompose_if_any(code, parts);
            const auto first = static_cast<std::size_t>(parts[0]);
            bool stable = combining_class(code) == 0 && combining_class(parts[0]) == 0 && !later->test(first) &&
                          !later->test(static_cast<std::size_t>(code));
            if (stable && (count > 1 || parts[0] != code)) {
                composed.assign(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
                compose(composed);
                stable = composed.size() == 1 && composed[0] == code;
            }
            if (stable) stable_->set(static_cast<std::size_t>(code));
        }
    }
    bool contains(std::uint32_t code) const { return stable_->test(code); }

  private:
    static std::size_t decompose_if_any(std::int32_t code, Decomposition& parts) {
        const bool surrogate = code >= 0xD800 && code < 0xE000;
        if (!surrogate && utf8proc_category(code) != UTF8PROC_CATEGORY_CN) return decompose(code, parts);
        parts[0] = code;
        return 1;
    }
    std::unique_ptr<std::bitset<code_points>> stable_;
};

const StableCharacters& stable_characters() {
    static const StableCharacters made;
    return made;
}

bool is_continuation(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// The first byte at or behind `at` that may begin a character beyond the stable ones.
std::size_t skip_low(std::string_view text, std::size_t at) {
    while (at < text.size() && static_cast<unsigned char>(text[at]) < first_unstable_lead) ++at;
    return at;
}

std::size_t character_before(std::string_view text, std::size_t at) {
    do --at;
    while (at > 0 && is_continuation(text[at]));
    return at;
}

void append(std::string& text, std::int32_t code) {
    std::array<utf8proc_uint8_t, 4> bytes;
    const auto count = utf8proc_encode_char(code, bytes.data());
    text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(count));
}

std::string composed_run(std::string_view run) {
    std::vector<utf8proc_int32_t> codes;
    Decomposition parts;
    while (!run.empty()) {
        const Character next = first_character(run);
        const std::size_t count = decompose(static_cast<std::int32_t>(next.code), parts);
        codes.insert(codes.end(), parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count));
        run.remove_prefix(next.bytes);
    }
    compose(codes);
    std::string text;
    for (const auto code : codes) append(text, code);
    return text;
}

// Of the ill-formed sequence at the beginning of `text`, what one replacement character stands for.
std::size_t damaged_bytes(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned lead = byte(0);
    const std::size_t length = lead >= 0xF0 && lead <= 0xF4   ? 4
                               : lead >= 0xE0 && lead <= 0xEF ? 3
                               : lead >= 0xC2 && lead <= 0xDF ? 2
                                                              : 1;
    if (length == 1 || text.size() < 2) return 1;
    const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (byte(1) < least || byte(1) > most) return 1;
    std::size_t taken = 2;
    while (taken < length && taken < text.size() && is_continuation(text[taken])) ++taken;
    return taken;
}

}  // namespace

std::string_view replace_damage(std::string_view text, std::string& copy, TextChanges& changes) {
    changes.clear();
    std::size_t damage = first_damage(text);
    if (damage == std::string_view::npos) return text;
    copy.clear();
    std::size_t done = 0;
    while (damage != std::string_view::npos) {
        const std::size_t begin = done + damage, end = begin + damaged_bytes(text.substr(begin));
        copy.append(text.substr(done, damage));
        changes.add(begin, end, copy.size(), copy.size() + replacement.size());
        copy.append(replacement);
        done = end;
        damage = first_damage(text.substr(done));
    }
    copy.append(text.substr(done));
    return copy;
}

std::string_view compose(std::string_view text, std::string& copy, TextChanges& changes) {
    changes.clear();
    copy.clear();
    std::size_t done = 0;
    for (std::size_t at = skip_low(text, 0); at < text.size(); at = skip_low(text, at)) {
        const Character next = first_character(text.substr(at));
        if (stable_characters().contains(next.code)) {
            at += next.bytes;
            continue;
        }
        // With the stable character before it, up to the next one.
        const std::size_t begin = at == 0 ? 0 : character_before(text, at);
        std::size_t end = at;
        while (end < text.size()) {
            const Character one = first_character(text.substr(end));
            if (stable_characters().contains(one.code)) break;
            end += one.bytes;
        }
        const std::string run = composed_run(text.substr(begin, end - begin));
        at = end;
        if (run == text.substr(begin, end - begin)) continue;
        copy.append(text.substr(done, begin - done));
        changes.add(begin, end, copy.size(), copy.size() + run.size());
        copy.append(run);
        done = end;
    }
    if (done == 0) return text;
    copy.append(text.substr(done));
    return copy;
}

std::size_t whole_characters_before(std::string_view text, std::size_t at) {
    // A run of more bytes of this kind is invalid, and may be cut anywhere.
    for (std::size_t back = 0; back < 4 && back < at && at < text.size(); ++back)
        if (!is_continuation(text[at - back])) return at - back;
    return at;
}

std::size_t composed_for_good(std::string_view text) {
    std::size_t end = text.size();
    while (end > 0) {
        end = character_before(text, end);
        if (stable_characters().contains(first_character(text.substr(end)).code)) break;
    }
    return end;
}

}  // namespace lockstep::data::huggingface
