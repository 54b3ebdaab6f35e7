// A page's elements, as HTML that is well-formed XML too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/table.hpp"

namespace lockstep::analysis {

class Html {
  public:
    // `level` from 1. `id`: what a link may point to, or "".
    void heading(int level, std::string_view words, std::string_view id = "");
    void paragraph(std::string_view words, std::string_view css_class = "");
    // Each with what it is in front ("Warning", "Note").
    struct Item {
        std::string mark, words;
    };
    void list(const std::vector<Item>& items);
    // With a caption above; the first cell of a row is its heading. Numbers flush right; what is unknown is a dash. The
    // box scrolls where the table is wider than the page.
    void table(const Table& table, std::string_view caption);
    // Terms and what they mean.
    void definitions(const std::vector<std::pair<std::string, std::string>>& terms);
    // Markup that is whole and safe.
    void raw(std::string_view markup) { text_ += markup; }
    const std::string& text() const { return text_; }

  private:
    std::string text_;
};

// The whole page around a body.
std::string html_page(std::string_view title, const std::string& body);

}  // namespace lockstep::analysis
