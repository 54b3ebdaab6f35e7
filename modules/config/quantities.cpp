#include "config/quantities.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"

namespace lockstep::config {
namespace {

std::string toml_text(const std::string& text) {
    std::string result = "\"";
    for (const char character : text) {
        if (character == '"' || character == '\\') result += '\\';
        result += character == '\n' ? ' ' : character;
    }
    return result + "\"";
}

std::string section_of(const std::string& path) {
    const std::size_t dot = path.rfind('.');
    return dot == std::string::npos ? "" : path.substr(0, dot);
}

struct Found {
    std::string path;
    const toml::node* node;
};

void collect(const toml::table& table, const std::string& prefix, std::vector<Found>& found) {
    for (const auto& [key, node] : table) {
        const std::string path = prefix + std::string(key.str());
        if (const auto* inner = node.as_table())
            collect(*inner, path + ".", found);
        else
            found.push_back({path, &node});
    }
}

void assign(const Quantity& quantity, const toml::node& node, const std::string& place) {
    if (std::holds_alternative<std::monostate>(quantity.value)) return;
    if (auto* const* text = std::get_if<std::string*>(&quantity.value)) {
        const auto* truth = node.as_boolean();
        if (truth && !quantity.words.empty() && quantity.words.front() == "true") {
            **text = truth->get() ? "true" : "false";
            return;
        }
        const auto* given = node.as_string();
        if (!given) throw usage_error("{}{}: a text is wanted, in quotation marks", place, quantity.path);
        bool allowed = quantity.words.empty();
        for (const std::string& word : quantity.words) allowed = allowed || word == given->get();
        if (!allowed)
            throw usage_error("{}{} = {}: the allowed values are {}", place, quantity.path, toml_text(given->get()),
                              fmt::join(quantity.words, ", "));
        **text = given->get();
        return;
    }
    if (const auto* choice = std::get_if<Choice>(&quantity.value)) {
        const auto* given = node.as_string();
        if (!given) throw usage_error("{}{}: a text is wanted, in quotation marks", place, quantity.path);
        const auto word = std::find(choice->words.begin(), choice->words.end(), given->get());
        if (word == choice->words.end()) refuse_word(place + quantity.path, given->get(), texts_of(choice->words));
        *choice->value = static_cast<unsigned char>(word - choice->words.begin());
        return;
    }
    const auto given = node.value<double>();
    if (!node.is_number() || !given || !std::isfinite(*given))
        throw usage_error("{}{}: a number is wanted", place, quantity.path);
    if (*given < quantity.least || *given > quantity.most)
        throw usage_error("{}{} = {}: the number must lie between {} and {}", place, quantity.path, *given,
                          quantity.least, quantity.most);
    *std::get<double*>(quantity.value) = *given;
}

toml::table parse(const std::string& toml, const std::string& origin) {
    try {
        return toml::parse(toml, origin);
    } catch (const toml::parse_error& error) {
        throw usage_error("{}:{}: this is not TOML: {}", origin, error.source().begin.line, error.description());
    }
}

}  // namespace

std::size_t count_tables(const std::string& toml, const std::string& origin, const std::string& where) {
    const toml::table table = parse(toml, origin);
    const auto list = table.at_path(where);
    if (!list) return 0;
    if (!list.is_array_of_tables())
        throw usage_error("{}: {} is a list of tables: write [[{}]] before each", origin, where, where);
    return list.as_array()->size();
}

void read_quantities(const std::string& toml, const std::string& origin, std::vector<Quantity>& quantities,
                     const std::string& where, bool others_too) {
    const toml::table table = parse(toml, origin);
    const toml::table* wanted = where.empty() ? &table : table.at_path(where).as_table();
    if (!wanted) return;
    std::vector<Found> found;
    collect(*wanted, "", found);
    std::set<std::string> given;
    std::vector<std::string> known;
    for (const Quantity& quantity : quantities) known.push_back(quantity.path);
    for (const Found& item : found) {
        const std::string place = fmt::format("{}:{}: ", origin, item.node->source().begin.line);
        bool assigned = false;
        for (const Quantity& quantity : quantities) {
            if (quantity.path != item.path) continue;
            assign(quantity, *item.node, place);
            assigned = true;
        }
        if (!assigned && !others_too) {
            const std::string near = nearest_name(item.path, known);
            throw usage_error("{}{} is not a key of this file{}", place, item.path,
                              near.empty() ? "" : "; did you mean " + near + "?");
        }
        given.insert(item.path);
    }
    for (const Quantity& quantity : quantities)
        if (quantity.required && given.count(quantity.path) == 0)
            throw usage_error("{}: {} is missing: {}", origin, quantity.path, quantity.meaning);
}

std::string read_text_file(const std::string& path) {
    if (std::filesystem::is_directory(path)) throw usage_error("{} is a folder; a file is wanted", path);
    std::ifstream file(path);
    if (!file) throw usage_error("{} cannot be read: {}", path, system_error_text());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void read_quantity_file(const std::string& path, std::vector<Quantity>& quantities) {
    read_quantities(read_text_file(path), path, quantities);
}

std::string quantities_to_toml(const std::vector<Quantity>& quantities) {
    std::string text, section;
    for (const Quantity& quantity : quantities) {
        if (std::holds_alternative<std::monostate>(quantity.value)) continue;
        const std::string here = section_of(quantity.path);
        if (here != section) text += fmt::format("\n[{}]\n", here);
        section = here;
        const std::string key = here.empty() ? quantity.path : quantity.path.substr(here.size() + 1);
        std::string value;
        if (auto* const* word = std::get_if<std::string*>(&quantity.value)) {
            value = toml_text(**word);
        } else if (const auto* choice = std::get_if<Choice>(&quantity.value)) {
            value = toml_text(std::string(choice->words[*choice->value]));
        } else {
            value = fmt::format("{}", *std::get<double*>(quantity.value));
            if (value.find_first_of(".e") == std::string::npos) value += ".0";
        }
        text += fmt::format("{} = {}  # {}\n", key, value, quantity.meaning);
    }
    return text;
}

}  // namespace lockstep::config
