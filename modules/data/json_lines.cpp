#include "data/json_lines.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "data/file_ending.hpp"

namespace lockstep::data {
namespace {

constexpr std::size_t part_bytes = std::size_t{1} << 18;

// "[json.exception.parse_error.101] parse error at line 1, column 9: WORDS; last read: …": the words, at most 100
// bytes, without what may be no text.
std::string words_of(std::string_view said) {
    const auto skip_to_behind = [&](std::string_view mark) {
        if (const auto at = said.find(mark); at != std::string_view::npos) said.remove_prefix(at + mark.size());
    };
    skip_to_behind("] ");
    if (said.starts_with("parse error")) skip_to_behind(": ");
    said = said.substr(0, std::min(said.find("; last read"), std::size_t{100}));
    std::string words(said.substr(0, first_damage(said)));
    std::erase_if(words, [](char byte) { return static_cast<unsigned char>(byte) < ' '; });
    return words;
}

// Finds one field of the outermost object; keeps nothing else. nlohmann's parser calls it without recursion.
class FieldFinder final : public nlohmann::json_sax<nlohmann::json> {
  public:
    FieldFinder(const std::string& field, std::string& text) : field_(field), text_(text) {}

    bool is_object = false, found = false, is_text = false, too_deep = false;
    std::size_t damaged_at = 0;  // position in the line
    std::string problem;         // in the parser's words
    bool is_valid_but_large = false;

    bool null() override { return other(); }
    bool boolean(bool) override { return other(); }
    bool number_integer(number_integer_t) override { return other(); }
    bool number_unsigned(number_unsigned_t) override { return other(); }
    bool number_float(number_float_t, const string_t&) override { return other(); }
    bool binary(binary_t&) override { return other(); }
    bool string(string_t& value) override {
        if (wanted()) {
            found = is_text = true;
            text_.swap(value);
        }
        return true;
    }
    bool key(string_t& name) override {
        if (depth_ == 1) wanted_ = name == field_;
        return true;
    }
    bool start_object(std::size_t) override {
        if (depth_ == 0) is_object = true;
        return enter();
    }
    bool start_array(std::size_t) override { return enter(); }
    bool end_object() override { return leave(); }
    bool end_array() override { return leave(); }
    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& said) override {
        damaged_at = position;
        problem = words_of(said.what());
        is_valid_but_large = dynamic_cast<const nlohmann::json::out_of_range*>(&said) != nullptr;
        return false;
    }

  private:
    bool wanted() const { return depth_ == 1 && is_object && wanted_; }
    bool other() {
        if (wanted()) {
            found = true;
            is_text = false;
        }
        return true;
    }
    bool enter() {
        other();
        too_deep = ++depth_ > JsonLines::deepest;
        return !too_deep;
    }
    bool leave() {
        --depth_;
        return true;
    }

    const std::string& field_;
    std::string& text_;
    int depth_ = 0;
    bool wanted_ = false;
};

bool is_blank(const std::string& line) {
    return line.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

bool is_json_lines(std::string_view path, bool named) {
    const std::string_view plain = without_compression(path);
    return has_ending(plain, ".jsonl") || has_ending(plain, ".ndjson") ||
           (has_ending(plain, ".json") && (named || plain.size() < path.size()));
}

JsonLines::JsonLines(const std::string& path, std::string field)
    : path_(path), field_(std::move(field)), stream_(open_byte_stream(path)) {}

bool JsonLines::next_line() {
    line_.clear();
    for (;;) {
        if (begin_ == part_.size()) {
            part_.resize(part_bytes);
            begin_ = 0;
            part_.resize(stream_->read(part_.data(), part_.size()));
            if (part_.empty()) {
                if (line_.empty()) return false;
                break;
            }
        }
        const void* newline = std::memchr(part_.data() + begin_, '\n', part_.size() - begin_);
        const std::size_t end =
            newline ? static_cast<std::size_t>(static_cast<const char*>(newline) - part_.data()) : part_.size();
        if (line_.size() + (end - begin_) > longest_line)
            throw damaged_error("{}:{}: the line is longer than {} MiB; one document per line is expected", path_,
                                number_ + 1, longest_line >> 20);
        line_.append(part_, begin_, end - begin_);
        begin_ = newline ? end + 1 : end;
        if (newline) break;
    }
    ++number_;
    return true;
}

bool JsonLines::next(std::string& text) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    while (next_line()) {
        if (number_ == 1 && line_.starts_with(byte_order_mark)) line_.erase(0, byte_order_mark.size());
        if (is_blank(line_)) continue;
        text.clear();
        FieldFinder finder(field_, text);
        const bool valid = nlohmann::json::sax_parse(line_, &finder);
        if (finder.too_deep)
            throw damaged_error("{}:{}: objects and arrays nested more than {} deep", path_, number_, deepest);
        if (!valid)
            throw damaged_error("{}:{}: {} near byte {} of the line ({}); each line must be one object", path_, number_,
                                finder.is_valid_but_large ? "a number that is too large" : "not valid JSON in UTF-8",
                                finder.damaged_at, finder.problem);
        if (!finder.is_object)
            throw damaged_error(
                "{}:{}: the line is not a JSON object; each line must be one, otherwise leave this file out", path_,
                number_);
        if (!finder.found)
            throw usage_error(
                "{}:{}: the object has no field \"{}\"; name the field with the text (--jsonl-field, or "
                "data.jsonl_field in a run description)",
                path_, number_, field_);
        if (!finder.is_text)
            throw usage_error(
                "{}:{}: the field \"{}\" is not a string; name the field with the text (--jsonl-field, or "
                "data.jsonl_field in a run description)",
                path_, number_, field_);
        if (!text.empty()) return true;
        ++empty_;
    }
    return false;
}

}  // namespace lockstep::data
