// Headings, tables and sentences in sequence, as text or Markdown.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/table.hpp"

namespace lockstep::analysis {

class Page {
  public:
    explicit Page(TableFormat format) : format_(format) {}
    void heading(const std::string& words, bool main = false) {
        if (!text_.empty()) text_ += "\n";
        text_ += format_ == TableFormat::markdown ? fmt::format("{} {}\n\n", main ? "##" : "###", words) : words + "\n";
    }
    void table(const Table& table) { text_ += table.print(format_); }
    void sentence(const std::string& words) { text_ += (format_ == TableFormat::markdown ? "- " : "") + words + "\n"; }
    // Under the heading "Remarks"; nothing without any.
    void remarks(const std::vector<std::string>& sentences) {
        if (!sentences.empty()) heading("Remarks");
        for (const std::string& one : sentences) sentence(one);
    }
    const std::string& text() const { return text_; }

  private:
    TableFormat format_;
    std::string text_;
};

}  // namespace lockstep::analysis
