#include "data/huggingface/added_tokens.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"

namespace lockstep::data::huggingface {
namespace {

bool is_white_space(std::uint32_t code) {
    return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
           code == 0x3000;
}

// What \w of Unicode's technical standard 18 is, but for the few symbols that are alphabetic.
bool is_word(std::uint32_t code) {
    switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            break;
    }
    return code == 0x200C || code == 0x200D ||                                            // joiners
           (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||  // letters in circles
           (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);  // and squares
}

Character last_character(std::string_view text) {
    std::size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return first_character(text.substr(begin));
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
    return (begin == 0 || !is_word(last_character(text.substr(0, begin)).code)) &&
           (end == text.size() || !is_word(first_character(text.substr(end)).code));
}

}  // namespace

std::size_t white_space_before(std::string_view text, std::size_t end, std::size_t least) {
    while (end > least) {
        const Character last = last_character(text.substr(0, end));
        if (!is_white_space(last.code)) break;
        end -= last.bytes;
    }
    return end;
}

std::size_t white_space_behind(std::string_view text, std::size_t begin) {
    while (begin < text.size()) {
        const Character next = first_character(text.substr(begin));
        if (!is_white_space(next.code)) break;
        begin += next.bytes;
    }
    return begin;
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    first_.fill(-1);
    bool strips_right = false, spaced = false;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
        const AddedToken& token = tokens_[i];
        longest_ = std::max(longest_, token.content.size());
        strips_left_ = strips_left_ || token.lstrip;
        strips_right = strips_right || token.rstrip;
        spaced = spaced || is_white_space(first_character(token.content).code);
        // It looks at the character before, and hides tokens that begin inside of it even where it does not count.
        if (token.single_word) restarts_anywhere_ = false;
        add(i);
    }
    if (strips_right && spaced) restarts_anywhere_ = false;
}

void AddedTokens::add(std::size_t token) {
    const std::string& content = tokens_[token].content;
    std::int32_t& first = first_[static_cast<unsigned char>(content.front())];
    if (first < 0) {
        first = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({});
    }
    std::int32_t node = first;
    for (std::size_t i = 1; i < content.size(); ++i) {
        std::int32_t child = child_of(node, content[i]);
        if (child < 0) {
            child = static_cast<std::int32_t>(nodes_.size());
            nodes_.push_back({-1, -1, nodes_[static_cast<std::size_t>(node)].child, content[i]});
            nodes_[static_cast<std::size_t>(node)].child = child;
        }
        node = child;
    }
    Node& last = nodes_[static_cast<std::size_t>(node)];
    if (last.token < 0) last.token = static_cast<std::int32_t>(token);
}

std::int32_t AddedTokens::child_of(std::int32_t node, char byte) const {
    std::int32_t child = nodes_[static_cast<std::size_t>(node)].child;
    while (child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte)
        child = nodes_[static_cast<std::size_t>(child)].next;
    return child;
}

std::int32_t AddedTokens::longest_at(std::string_view text, std::size_t at) const {
    std::int32_t found = -1;
    std::int32_t node = first_[static_cast<unsigned char>(text[at])];
    while (node >= 0) {
        const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
        if (token >= 0) found = token;
        if (++at == text.size()) break;
        node = child_of(node, text[at]);
    }
    return found;
}

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t from, std::size_t before,
                                     std::size_t least) const {
    if (tokens_.empty()) return {};
    for (std::size_t at = from; at < before; ++at) {
        if (first_[static_cast<unsigned char>(text[at])] < 0) continue;
        const std::int32_t index = longest_at(text, at);
        if (index < 0) continue;
        const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
        const std::size_t end = at + token.content.size();
        if (token.single_word && !stands_alone(text, at, end)) {
            at = end - 1;
            continue;
        }
        return {&token, token.lstrip ? white_space_before(text, at, least) : at,
                token.rstrip ? white_space_behind(text, end) : end, end};
    }
    return {};
}

}  // namespace lockstep::data::huggingface
