#include "base/utf8.hpp"

#include <utf8.h>

#include <algorithm>

namespace lockstep {

Character first_character(std::string_view text) {
    const char* at = text.data();
    try {
        const auto code = static_cast<std::uint32_t>(utf8::next(at, text.data() + text.size()));
        return {code, static_cast<std::size_t>(at - text.data())};
    } catch (const utf8::exception&) {
        return {};
    }
}

std::size_t character_count(std::string_view text) {
    std::size_t count = 0;
    while (!text.empty()) {
        const std::size_t valid = std::min(first_damage(text), text.size());
        count += static_cast<std::size_t>(utf8::distance(text.data(), text.data() + valid));
        text.remove_prefix(valid);
        if (text.empty()) break;
        text.remove_prefix(1);
        ++count;
    }
    return count;
}

std::size_t first_damage(std::string_view text) {
    const char* end = text.data() + text.size();
    const char* found = utf8::find_invalid(text.data(), end);
    return found == end ? std::string_view::npos : static_cast<std::size_t>(found - text.data());
}

std::size_t whole_characters(std::string_view text) {
    constexpr std::size_t longest = 4;
    const char* end = text.data() + text.size();
    for (std::size_t back = 1; back < longest && back <= text.size(); ++back) {
        const char* at = end - back;
        try {
            utf8::next(at, end);
            return text.size();
        } catch (const utf8::not_enough_room&) {
            return text.size() - back;
        } catch (const utf8::exception&) {
            // The last byte of a longer character, or invalid.
        }
    }
    return text.size();
}

}  // namespace lockstep
