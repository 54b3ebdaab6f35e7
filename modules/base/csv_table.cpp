#include "base/csv_table.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "base/whole_file.hpp"

namespace lockstep {
namespace {

constexpr std::string_view blanks = " \t";
constexpr std::uintmax_t largest_table = std::uintmax_t{256} << 20;  // bytes; far more than a table of measurements

std::string trimmed(const std::string& text) {
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string::npos) return "";
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

void check_text(const std::string& path, const std::string& text) {
    const std::size_t damage = std::min(first_damage(text), text.find('\0'));
    if (damage == std::string::npos) return;
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(damage), '\n');
    throw usage_error("{} line {}: not UTF-8; save the table as CSV in UTF-8", path, line);
}

std::string read_text(const std::string& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) throw usage_error("{} does not exist; give a CSV table", path);
    if (!std::filesystem::is_regular_file(path, ignored)) throw usage_error("{} is not a file; give a CSV table", path);
    if (std::filesystem::file_size(path, ignored) > largest_table)
        throw usage_error("{} is larger than 256 MiB; split the table", path);
    std::string text = read_text_file(path);
    constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
    if (text.compare(0, byte_order_mark.size(), byte_order_mark) == 0) text.erase(0, byte_order_mark.size());
    check_text(path, text);
    return text;
}

class Reader {
  public:
    Reader(const std::string& path, const std::string& text) : path_(path), text_(text) {}

    // False at the end.
    bool next(CsvRow& row) {
        skip_what_is_no_row();
        if (at_ == text_.size()) return false;
        row.line = line_;
        row.fields.clear();
        do row.fields.push_back(field());
        while (take(','));
        if (at_ < text_.size() && !end_of_line())
            throw usage_error("{} line {}: text after a closing quote", path_, line_);
        take_line_end();
        return true;
    }

  private:
    bool end_of_line() const {
        return text_[at_] == '\n' || (text_[at_] == '\r' && (at_ + 1 == text_.size() || text_[at_ + 1] == '\n'));
    }
    void take_line_end() {
        if (take('\r'))
            take('\n');
        else
            take('\n');
        ++line_;
    }
    bool take(char letter) {
        if (at_ == text_.size() || text_[at_] != letter) return false;
        ++at_;
        return true;
    }
    void skip_blanks() {
        while (at_ < text_.size() && blanks.find(text_[at_]) != std::string_view::npos) ++at_;
    }
    void skip_what_is_no_row() {
        while (at_ < text_.size()) {
            const std::size_t begin = at_;
            skip_blanks();
            if (at_ < text_.size() && text_[at_] == '#')
                while (at_ < text_.size() && !end_of_line()) ++at_;
            else if (at_ < text_.size() && !end_of_line()) {
                at_ = begin;
                return;
            }
            if (at_ < text_.size()) take_line_end();
        }
    }
    std::string field() {
        skip_blanks();
        if (take('"')) return quoted();
        std::string value;
        while (at_ < text_.size() && text_[at_] != ',' && !end_of_line()) {
            if (text_[at_] == '"')
                throw usage_error("{} line {}: a quote in an unquoted field; write \"…\"\"…\"", path_, line_);
            value += text_[at_++];
        }
        return trimmed(value);
    }
    std::string quoted() {
        std::string value;
        const std::size_t began = line_;
        while (at_ < text_.size()) {
            const char letter = text_[at_++];
            if (letter == '"' && !take('"')) {
                skip_blanks();
                return value;
            }
            if (letter == '\n') ++line_;
            value += letter;
        }
        throw usage_error("{} line {}: unterminated quote", path_, began);
    }

    const std::string& path_;
    const std::string& text_;
    std::size_t at_ = 0, line_ = 1;
};

void check_header(const CsvTable& table) {
    const CsvRow& header = table.header;
    if (header.fields.size() == 1)
        for (const auto& [letter, name] : {std::pair{';', "semicolons"}, std::pair{'\t', "tabs"}})
            if (header.fields.front().find(letter) != std::string::npos)
                throw usage_error("{} line {}: the columns are separated by {}; save the table with commas", table.path,
                                  header.line, name);
    std::set<std::string> seen;
    for (const std::string& name : header.fields)
        if (!name.empty() && !seen.insert(name).second)
            throw usage_error("{} line {}: duplicate column '{}'", table.path, header.line, printable(name));
}

}  // namespace

std::string printable(const std::string& cell) {
    constexpr std::size_t most = 60;  // bytes
    std::string out;
    for (std::size_t at = 0; at < cell.size();) {
        if (out.size() >= most) return out + "…";
        const std::size_t bytes = std::max<std::size_t>(first_character(std::string_view(cell).substr(at)).bytes, 1);
        const auto letter = static_cast<unsigned char>(cell[at]);
        out += letter < 0x20 || letter == 0x7f ? " " : cell.substr(at, bytes);
        at += bytes;
    }
    return out;
}

CsvTable read_csv_table(const std::string& path) {
    CsvTable table;
    table.path = path;
    const std::string text = read_text(path);
    Reader reader(path, text);
    if (!reader.next(table.header)) throw usage_error("{} is empty; its first row must name the columns", path);
    check_header(table);
    for (CsvRow row; reader.next(row); table.rows.push_back(row))
        if (row.fields.size() != table.header.fields.size())
            throw usage_error("{} line {}: {} fields, but the header in line {} names {} columns", path, row.line,
                              row.fields.size(), table.header.line, table.header.fields.size());
    if (table.rows.empty()) throw usage_error("{} has no rows below its header in line {}", path, table.header.line);
    return table;
}

}  // namespace lockstep
