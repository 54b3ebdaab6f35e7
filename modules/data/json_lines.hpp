// Internal: texts of a JSON Lines file (one object a line, as C4, Dolma or The Pile are published), plain or
// compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/byte_stream.hpp"

namespace lockstep::data {

// .jsonl and .ndjson, also compressed, and compressed .json. `named`: the user named the file itself, and plain .json
// counts too; in folders such files are text like any other.
bool is_json_lines(std::string_view path, bool named);

class JsonLines {
  public:
    static constexpr std::size_t longest_line = std::size_t{64} << 20;  // bytes
    static constexpr int deepest = 256;                                 // nesting of arrays and objects

    JsonLines(const std::string& path, std::string field);
    // The text of the next line that has some; false: the end. Lines of white space are skipped, empty texts counted.
    // Errors name the line. Damaged: not a JSON object, a line too long or nested too deeply. Usage: no such field, a
    // field that is not a string. Memory: a few times the line's length.
    bool next(std::string& text);
    std::int64_t line() const { return number_; }  // of that text, from 1
    std::int64_t empty() const { return empty_; }
    std::uint64_t consumed() const { return stream_->consumed(); }  // bytes of the file

  private:
    bool next_line();

    std::string path_, field_;
    std::unique_ptr<ByteStream> stream_;
    std::string part_;  // read, from begin_ on not yet used
    std::size_t begin_ = 0;
    std::string line_;
    std::int64_t number_ = 0, empty_ = 0;
};

}  // namespace lockstep::data
