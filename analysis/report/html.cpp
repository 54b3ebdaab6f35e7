#include "analysis/report/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/page_script.hpp"
#include "analysis/report/style.hpp"
#include "analysis/report/text.hpp"
#include "base/format.hpp"

namespace lockstep::analysis {
namespace {

constexpr const char* dash = "\xE2\x80\x93";

std::string cell_words(const Cell& cell, int decimals) {
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return with_commas(*whole);
    if (const auto* number = std::get_if<double>(&cell))
        return std::isfinite(*number) ? fmt::format("{:.{}f}", *number, decimals) : dash;
    if (const auto* words = std::get_if<std::string>(&cell)) return *words;
    return dash;
}

// Numbers, with their units or as an interval, and what is unknown.
bool reads_as_number(const Cell& cell) {
    const auto* words = std::get_if<std::string>(&cell);
    if (!words || words->empty() || *words == dash) return true;
    const std::size_t first = words->front() == '-' ? 1 : 0;
    return words->size() < 24 && first < words->size() && (*words)[first] >= '0' && (*words)[first] <= '9';
}

// The first column may hold names such as 2026-run.
bool is_words(const Cell& cell) {
    return std::holds_alternative<std::string>(cell);
}

}  // namespace

void Html::heading(int level, std::string_view words, std::string_view id) {
    const std::string mark = id.empty() ? "" : fmt::format(" id=\"{}\"", escape_markup(id));
    text_ += fmt::format("<h{}{}>{}</h{}>\n", level, mark, escape_markup(words), level);
}

void Html::paragraph(std::string_view words, std::string_view css_class) {
    const std::string mark = css_class.empty() ? "" : fmt::format(" class=\"{}\"", css_class);
    text_ += fmt::format("<p{}>{}</p>\n", mark, escape_markup(words));
}

void Html::list(const std::vector<Item>& items) {
    if (items.empty()) return;
    text_ += "<ul class=\"remarks\">\n";
    for (const Item& item : items)
        text_ += fmt::format("<li{}><strong>{}.</strong> {}</li>\n", item.mark == "Warning" ? " class=\"warning\"" : "",
                             escape_markup(item.mark), escape_markup(item.words));
    text_ += "</ul>\n";
}

void Html::table(const Table& table, std::string_view caption) {
    const std::string words = escape_markup(caption);
    text_ += fmt::format(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
        "aria-label=\"{}\">\n<table>\n<caption><span>{}</span></caption>\n"
        "<thead><tr>",
        words, words);
    std::vector<const char*> alignment;
    for (std::size_t c = 0; c < table.columns().size(); ++c) {
        const bool numbers = std::all_of(table.rows().begin(), table.rows().end(), [&](const auto& row) {
            return c == 0 ? !is_words(row[c]) : reads_as_number(row[c]);
        });
        alignment.push_back(numbers ? "" : " class=\"words\"");
        text_ += fmt::format("<th scope=\"col\"{}>{}</th>", alignment[c], escape_markup(table.columns()[c].title));
    }
    text_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows()) {
        text_ += "<tr>";
        for (std::size_t c = 0; c < row.size(); ++c) {
            const std::string cell = escape_markup(cell_words(row[c], table.columns()[c].decimals));
            text_ += c == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", alignment[c], cell)
                            : fmt::format("<td{}>{}</td>", alignment[c], cell);
        }
        text_ += "</tr>\n";
    }
    text_ += "</tbody>\n</table>\n</div>\n";
}

void Html::definitions(const std::vector<std::pair<std::string, std::string>>& terms) {
    text_ += "<dl>\n";
    for (const auto& [term, meaning] : terms)
        text_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_markup(term), escape_markup(meaning));
    text_ += "</dl>\n";
}

std::string html_page(std::string_view title, const std::string& body) {
    // The policy forbids loading anything and running anything but the page's own script: the page is self-contained.
    return fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; script-src "
        "&#39;{}&#39;; style-src &#39;unsafe-inline&#39;; img-src data:; base-uri &#39;none&#39;; form-action &#39;none&#39;\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<title>{}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n{}</main>\n<script>{}</script>\n</body>\n</html>\n",
        page_script_hash, escape_markup(title), page_style(), body, page_script);
}

}  // namespace lockstep::analysis
