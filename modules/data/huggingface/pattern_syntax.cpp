#include "data/huggingface/pattern_syntax.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::size_t longest_pattern = 4096, most_depth = 32;
constexpr int most_repeats = 1000;

// Unicode's White_Space, which \s is there; PCRE2's \s has U+180E besides.
constexpr const char* white_space =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr const char* word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

constexpr std::array<std::string_view, 37> categories = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Cs", "Co", "Cn"};
constexpr std::array<std::string_view, 16> scripts = {
    "Han",    "Hiragana", "Katakana",   "Hangul",  "Latin", "Greek",  "Cyrillic", "Arabic",
    "Hebrew", "Thai",     "Devanagari", "Bengali", "Tamil", "Telugu", "Khmer",    "Lao"};

template <class List>
bool contains(const List& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}
bool is_hexadecimal(char byte) {
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

struct Escape {
    std::string single;   // one character, "" if a class
    std::string members;  // of a class, to stand in brackets; "" if it cannot
    std::string alone;    // the whole where it stands for itself
};

class Translator {
  public:
    Translator(std::string_view pattern, const std::string& key) : rest_(pattern), whole_(pattern), key_(key) {}

    std::string translate() {
        if (whole_.size() > longest_pattern) refuse(fmt::format("more than {} bytes", longest_pattern));
        if (first_damage(whole_) != std::string_view::npos) malformed("invalid UTF-8");
        groups_.push_back({});
        if (take("(?i)")) out_ += "(?i)";
        while (!rest_.empty()) {
            if (!take_quantifier()) take_atom();
        }
        if (groups_.size() != 1) malformed("an unclosed group");
        return out_;
    }

  private:
    struct Group {
        bool repeats = false;    // has a repetition in it
        bool assertion = false;  // consumes nothing
    };
    struct Atom {
        bool quantifiable = false, repeats = false;
    };

    [[noreturn]] void refuse(const std::string& what) const {
        throw usage_error("{} has {}, which is not implemented; use another tokenizer", key_, what);
    }

    [[noreturn]] void malformed(const std::string& what) const {
        throw damaged_error("{} is not a pattern: {}", key_, what);
    }

    bool take(std::string_view beginning) {
        if (!rest_.starts_with(beginning)) return false;
        rest_.remove_prefix(beginning.size());
        return true;
    }
    char take_byte(const char* inside) {
        if (rest_.empty()) malformed(std::string("an end inside ") + inside);
        const char byte = rest_.front();
        rest_.remove_prefix(1);
        return byte;
    }

    void take_atom() {
        if (take("\\")) {
            out_ += take_escape().alone;
            atom_ = {true, false};
        } else if (take("[")) {
            take_class();
            atom_ = {true, false};
        } else if (take("(")) {
            open_group();
        } else if (take(")")) {
            close_group();
        } else if (take("|")) {
            out_ += '|';
            atom_ = {};
        } else if (take(".")) {
            out_ += R"([^\n])";
            atom_ = {true, false};
        } else if (rest_.front() == '^' || rest_.front() == '$') {
            refuse(std::string("the anchor ") + rest_.front());
        } else {
            const std::size_t bytes = first_character(rest_).bytes;
            if (bytes == 1 && std::string_view("{}]").find(rest_.front()) != std::string_view::npos) out_ += '\\';
            out_ += rest_.substr(0, bytes);
            rest_.remove_prefix(bytes);
            atom_ = {true, false};
        }
    }

    void open_group() {
        if (groups_.size() > most_depth) refuse("groups nested too deeply");
        Group group;
        group.assertion = rest_.starts_with("?=") || rest_.starts_with("?!");
        for (const std::string_view known : {"?:", "?i:", "?=", "?!", "?>"})
            if (take(known)) {
                out_ += '(';
                out_ += known;
                groups_.push_back(group);
                atom_ = {};
                return;
            }
        if (take("?")) {
            const char kind = take_byte("a group");
            refuse(kind > ' ' && kind <= '~' ? fmt::format("a group that begins with (?{}", kind) : "an unknown group");
        }
        out_ += "(?:";  // nothing refers to what it captures
        groups_.push_back(group);
        atom_ = {};
    }

    void close_group() {
        if (groups_.size() == 1) malformed("a ) without a (");
        const Group closed = groups_.back();
        groups_.pop_back();
        groups_.back().repeats = groups_.back().repeats || closed.repeats;
        out_ += ')';
        atom_ = {!closed.assertion, closed.repeats};
    }

    bool take_quantifier() {
        int most = -1;  // no limit
        bool interval = false;
        std::string written;
        if (rest_.front() == '*' || rest_.front() == '+') {
            written = take_byte("a quantifier");
        } else if (rest_.front() == '?') {
            written = take_byte("a quantifier");
            most = 1;
        } else if (const std::size_t length = interval_length(); length > 0) {
            written = read_interval(rest_.substr(0, length), most);
            rest_.remove_prefix(length);
            interval = true;
        } else {
            return false;
        }
        if (!atom_.quantifiable) refuse("a quantifier after nothing, an assertion or another quantifier");
        if (most != 1) {
            if (atom_.repeats) refuse("a repeated group that contains a repetition");
            groups_.back().repeats = true;
        }
        out_ += written;
        if (!rest_.empty() && (rest_.front() == '?' || rest_.front() == '+')) {
            // For intervals these do not mean what they mean in PCRE2.
            if (interval) refuse("an interval followed by ? or +");
            out_ += take_byte("a quantifier");
        }
        atom_ = {};
        return true;
    }

    // Of {n}, {n,}, {,m} or {n,m} at the beginning; 0: there is none.
    std::size_t interval_length() const {
        if (rest_.front() != '{') return 0;
        const auto end = rest_.find('}');
        if (end == std::string_view::npos) return 0;
        const auto inside = rest_.substr(1, end - 1);
        const auto digits = std::count_if(inside.begin(), inside.end(), is_digit);
        const auto commas = std::count(inside.begin(), inside.end(), ',');
        return digits > 0 && commas <= 1 && static_cast<std::size_t>(digits + commas) == inside.size() ? end + 1 : 0;
    }

    std::string read_interval(std::string_view interval, int& most) const {
        const auto inside = interval.substr(1, interval.size() - 2);
        const auto comma = inside.find(',');
        const int least = number(inside.substr(0, comma));
        if (comma == std::string_view::npos) most = least;
        if (comma == inside.size() - 1) return fmt::format("{{{},}}", least);
        if (comma != std::string_view::npos) most = number(inside.substr(comma + 1));
        if (most < least) refuse("an interval that ends before it begins");
        return fmt::format("{{{},{}}}", least, most);
    }

    int number(std::string_view digits) const {
        int value = 0;
        for (const char digit : digits) {
            value = value * 10 + (digit - '0');
            if (value > most_repeats) refuse(fmt::format("more than {} repetitions", most_repeats));
        }
        return value;
    }

    Escape take_escape() {
        const char name = take_byte("an escape");
        const auto one = [](std::string text) { return Escape{text, text, text}; };
        const auto set = [](const std::string& members, bool negated) {
            return Escape{"", negated ? "" : members, (negated ? "[^" : "[") + members + "]"};
        };
        switch (name) {
            case 's':
                return set(white_space, false);
            case 'S':
                return set(white_space, true);
            case 'w':
                return set(word, false);
            case 'W':
                return set(word, true);
            case 'd':
                return Escape{"", R"(\p{Nd})", R"(\p{Nd})"};
            case 'D':
                return Escape{"", R"(\P{Nd})", R"(\P{Nd})"};
            case 'n':
            case 'r':
            case 't':
            case 'f':
                return one(std::string("\\") + name);
            case 'v':
                return one(R"(\x{b})");
            case 'p':
            case 'P':
                return take_property(name == 'P');
            case 'x':
                return one(take_code(rest_.starts_with("{") ? 0 : 2));
            case 'u':
                return one(take_code(4));
            default:
                break;
        }
        const bool punctuation =
            name > ' ' && name <= '~' && !is_digit(name) && (name < 'A' || name > 'Z') && (name < 'a' || name > 'z');
        if (!punctuation && name != ' ')
            refuse(name > ' ' && name <= '~' ? fmt::format("\\{}", name) : "an unknown escape");
        return one(std::string("\\") + name);
    }

    Escape take_property(bool negated) {
        if (!take("{")) refuse("\\p without {");
        if (take("^")) negated = !negated;
        const auto end = std::min(rest_.find('}'), rest_.size());
        const std::string name(rest_.substr(0, end));
        rest_.remove_prefix(end);
        if (!take("}")) malformed("\\p{ without }");
        std::string text = negated ? "\\P{" : "\\p{";
        if (contains(categories, name))
            text += name;
        else if (contains(scripts, name))
            text += "sc:" + name;  // not of the extensions, which PCRE2 means without "sc:"
        else
            refuse(name.size() <= 40 ? fmt::format("\\p{{{}}}", name) : "a property with a long name");
        text += '}';
        return {"", text, text};
    }

    // `digits` hexadecimal ones, or 0: in braces.
    std::string take_code(std::size_t digits) {
        std::string text;
        if (digits == 0) {
            take("{");
            while (!rest_.empty() && rest_.front() != '}' && text.size() <= 6) text += take_byte("\\x{");
            if (!take("}")) malformed("\\x{ without }");
        } else {
            if (digits == 2 && rest_.size() < 2) refuse("\\x with fewer than two digits");
            while (text.size() < digits) text += take_byte("a character code");
        }
        const bool valid = !text.empty() && std::all_of(text.begin(), text.end(), is_hexadecimal);
        const unsigned long code = valid ? std::stoul(text, nullptr, 16) : 0x110000;
        // A byte from 0x80 is no character there.
        if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || (digits == 2 && code >= 0x80))
            refuse("an invalid character code");
        return fmt::format("\\x{{{:x}}}", code);
    }

    void take_class() {
        out_ += '[';
        if (take("^")) out_ += '^';
        bool empty = true, after_set = false;
        while (!take("]")) {
            if (rest_.empty()) malformed("a [ without a ]");
            if (rest_.starts_with("&&")) refuse("&& in brackets");
            const Escape first = take_member();
            if (first.members.empty()) refuse("\\S or \\W in brackets");
            const bool dash = first.single == "-";
            if (dash && !empty && after_set && !rest_.starts_with("]")) refuse("a range that begins with a class");
            out_ += dash ? "\\-" : first.members;
            after_set = first.single.empty();
            empty = false;
            if (!rest_.starts_with("-") || rest_.starts_with("-]")) continue;
            if (after_set || dash) refuse("a range that begins with a class or a dash");
            take("-");
            const Escape last = take_member();
            if (last.single.empty()) refuse("a range that ends with a class");
            out_ += '-' + last.single;
        }
        if (empty) malformed("empty brackets");
        out_ += ']';
    }

    Escape take_member() {
        if (take("\\")) return take_escape();
        if (rest_.empty() || rest_.front() == '[' || rest_.front() == ']') refuse("nested brackets");
        const std::size_t bytes = first_character(rest_).bytes;
        std::string text(rest_.substr(0, bytes));
        rest_.remove_prefix(bytes);
        if (text == "^") text = "\\^";
        return {text, text, text};
    }

    std::string_view rest_, whole_;
    const std::string& key_;
    std::vector<Group> groups_;
    Atom atom_;
    std::string out_;
};

}  // namespace

std::string pcre2_syntax(const std::string& pattern, const std::string& key) {
    return Translator(pattern, key).translate();
}

}  // namespace lockstep::data::huggingface
