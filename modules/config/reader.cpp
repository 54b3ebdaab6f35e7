#include "config/reader.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"

namespace lockstep::config {

namespace {

// "an integer", "one of "rms", "layer"": what a key takes, in a sentence.
std::string type_in_words(const Key& key) {
    const std::string type = type_of(key);
    if (type.starts_with("integer")) return "an " + type;
    return type.starts_with("number") || type.starts_with("list") ? "a " + type : type;
}

[[noreturn]] void refuse_type(const Given& given, const Key& key) {
    const std::string wanted = type_in_words(key);
    std::string found;
    if (const auto* text = given.node->as_string())
        found = "the text " + toml_text(text->get());
    else if (const auto* integer = given.node->as_integer())
        found = fmt::format("the integer {}", integer->get());
    else if (const auto* real = given.node->as_floating_point())
        found = fmt::format("the number {}", real->get());
    else if (const auto* truth = given.node->as_boolean())
        found = truth->get() ? "true" : "false";
    else if (given.node->is_array())
        found = "a list";
    else if (given.node->is_table())
        found = "a table";
    else
        found = "a date or time";
    const bool counts = std::holds_alternative<std::int64_t*>(key.member) ||
                        std::holds_alternative<CountOrList>(key.member) ||
                        std::holds_alternative<CountOrLayers>(key.member);
    if (const auto* real = given.node->as_floating_point(); real && counts) {
        const double value = real->get();
        if (value == std::floor(value) && std::abs(value) < 1e15)
            throw usage_error("{}{} must be an integer, not {}: write {:.0f}", given.place, key.path, found, value);
    }
    throw usage_error("{}{} must be {}, not {}", given.place, key.path, wanted, found);
}

// The system's calls would take what stands before it for the whole.
const std::string& without_nul(const std::string& text, const Given& given, const Key& key) {
    if (text.find('\0') != std::string::npos)
        throw usage_error("{}{} holds the character U+0000, which no name or path can have", given.place, key.path);
    return text;
}

}  // namespace

// A bare word on the command line that TOML takes for something else is still the text that was typed: --set
// run.name=7.
std::string text_value(const Given& given, const Key& key) {
    if (const auto* text = given.node->as_string()) return without_nul(text->get(), given, key);
    if (!given.typed.empty() && !given.node->is_array() && !given.node->is_table()) return given.typed;
    refuse_type(given, key);
}

namespace {

std::int64_t integer_value(const Given& given, const Key& key) {
    if (const auto* value = given.node->as_integer()) return value->get();
    refuse_type(given, key);
}

double number_value(const Given& given, const Key& key) {
    double value = 0;
    if (const auto* real = given.node->as_floating_point())
        value = real->get();
    else
        value = static_cast<double>(integer_value(given, key));
    if (!std::isfinite(value)) throw usage_error("{}{} = {}: it must be finite", given.place, key.path, value);
    return value;
}

std::vector<std::string> list_value(const Given& given, const Key& key, bool one_is_enough) {
    const auto* array = given.node->as_array();
    if (!array) {
        if (!one_is_enough && given.typed.empty()) refuse_type(given, key);
        return {text_value(given, key)};
    }
    std::vector<std::string> list;
    for (const toml::node& item : *array) {
        const auto* text = item.as_string();
        if (!text)
            throw usage_error("{}{} holds an item that is not text; it must be {}", given.place, key.path,
                              type_in_words(key));
        list.push_back(without_nul(text->get(), given, key));
    }
    return list;
}

// One table of a mixture.
WeightedPaths weighted_paths(const Given& given, const Key& key, const toml::table& table) {
    constexpr double most = 1e12;
    WeightedPaths part;
    bool has_weight = false;
    for (auto&& [name, node] : table) {
        const std::string inside = key.path + ": " + std::string(name.str());
        const std::uint32_t line = name.source().begin.line;
        const Given value{inside, given.place, &node, "", line};
        const Key as{inside, std::monostate(), key.meaning};
        if (name.str() == "path" && node.is_array()) {
            for (const toml::node& item : *node.as_array()) {
                const auto* text = item.as_string();
                if (!text) throw usage_error("{}{} holds an item that is not text", given.place, inside);
                part.paths.push_back(without_nul(text->get(), value, as));
            }
        } else if (name.str() == "path" && node.is_string()) {
            part.paths = {without_nul(node.as_string()->get(), value, as)};
        } else if (name.str() == "path") {
            throw usage_error("{}{} must be a path or a list of paths", given.place, inside);
        } else if (name.str() == "weight" && node.is_number()) {
            has_weight = true;
            part.weight = number_value(value, as);
        } else if (name.str() == "weight") {
            throw usage_error("{}{} must be a number", given.place, inside);
        } else {
            throw usage_error("{}{} is not known; a source has path and weight", given.place, inside);
        }
    }
    if (part.paths.empty()) throw usage_error("{}{}: a source lacks its path", given.place, key.path);
    if (!has_weight)
        throw usage_error("{}{}: {} lacks its weight, the share of the samples that come from it", given.place,
                          key.path, part.paths.front());
    if (!(part.weight > 0 && part.weight <= most))
        throw usage_error("{}{}: the weight {} of {} must be above 0 and at most {:g}", given.place, key.path,
                          part.weight, part.paths.front(), most);
    return part;
}

void assign_mixture(const Given& given, const Key& key, const toml::array& array, std::vector<WeightedPaths>& mixture) {
    constexpr std::size_t most_sources = 1000;
    if (array.size() > most_sources)
        throw usage_error("{}{} has {} sources; at most {} can be mixed", given.place, key.path, array.size(),
                          most_sources);
    for (const toml::node& item : array) {
        const auto* table = item.as_table();
        if (!table)
            throw usage_error(
                "{}{} mixes paths and tables with weights; give every source a weight: {{path = …, weight = …}}",
                given.place, key.path);
        mixture.push_back(weighted_paths(given, key, *table));
    }
}

template <class Table>
Table table_of(const Given& given, const Key& key, const toml::table& table, std::size_t number);

struct Assign {
    const Given& given;
    const Key& key;

    void operator()(std::string* member) const {
        const std::string value = text_value(given, key);
        check_word(key, value, given.place);
        *member = value;
    }
    void operator()(const Choice& choice) const {
        const std::string value = text_value(given, key);
        const auto word = std::find(choice.words.begin(), choice.words.end(), value);
        if (word == choice.words.end()) refuse_word(given.place + key.path, value, texts_of(choice.words));
        *choice.value = static_cast<unsigned char>(word - choice.words.begin());
    }
    void operator()(std::monostate) const {}
    void operator()(bool* member) const {
        const auto* value = given.node->as_boolean();
        if (!value) refuse_type(given, key);
        *member = value->get();
    }
    void operator()(std::int64_t* member) const {
        *member = integer_value(given, key);
        check_range(key, static_cast<double>(*member), given.place);
    }
    void operator()(std::uint64_t* member) const {
        const std::int64_t value = integer_value(given, key);
        if (value < 0) throw usage_error("{}{} = {}: it must be an integer from 0", given.place, key.path, value);
        *member = static_cast<std::uint64_t>(value);
    }
    void operator()(double* member) const {
        *member = number_value(given, key);
        check_range(key, *member, given.place);
    }
    void operator()(std::vector<std::string>* member) const { *member = list_value(given, key, false); }
    void operator()(const TextOrList& texts) const {
        std::vector<std::string> list = list_value(given, key, true);
        if (list.size() == 1 && list.front().find(',') != std::string::npos)
            throw usage_error("{}{} = {}: write several as a list: [\"one\", \"another\"]", given.place, key.path,
                              toml_text(list.front()));
        if (list.empty()) throw usage_error("{}{} is empty; it must be {}", given.place, key.path, type_in_words(key));
        for (const std::string& text : list) check_word(key, text, given.place);
        *texts.list = std::move(list);
    }
    void operator()(const CountOrList& counts) const {
        std::vector<std::int64_t> list;
        if (const auto* array = given.node->as_array()) {
            for (const toml::node& item : *array) {
                const auto* number = item.as_integer();
                if (!number)
                    throw usage_error("{}{} holds an item that is not an integer; it must be {}", given.place, key.path,
                                      type_in_words(key));
                list.push_back(number->get());
            }
        } else {
            list.push_back(integer_value(given, key));
        }
        if (list.empty()) throw usage_error("{}{} is empty; it must be {}", given.place, key.path, type_in_words(key));
        for (const std::int64_t count : list) check_range(key, static_cast<double>(count), given.place);
        *counts.list = std::move(list);
    }
    void operator()(const CountOrLayers& layers) const {
        layers.tables->clear();
        const auto* array = given.node->as_array();
        if (!array) {
            *layers.count = integer_value(given, key);
            check_range(key, static_cast<double>(*layers.count), given.place);
            return;
        }
        if (array->empty())
            throw usage_error("{}{} is empty; it must be {}", given.place, key.path, type_in_words(key));
        double count = static_cast<double>(array->size());
        check_range(key, count, given.place);
        for (const toml::node& item : *array) {
            if (!item.is_table())
                throw usage_error("{}{} holds an item that is not a table; it must be {}", given.place, key.path,
                                  type_in_words(key));
            const auto table = table_of<LayerTable>(given, key, *item.as_table(), layers.tables->size());
            count += static_cast<double>(table.count - 1);
            layers.tables->push_back(table);
        }
        check_range(key, count, given.place);
        *layers.count = static_cast<std::int64_t>(count);
    }
    void operator()(const ListOfGroups& groups) const {
        groups.list->clear();
        const auto* array = given.node->as_array();
        if (!array) refuse_type(given, key);
        for (const toml::node& item : *array) {
            if (!item.is_table())
                throw usage_error("{}{} holds an item that is not a table; it must be {}", given.place, key.path,
                                  type_in_words(key));
            groups.list->push_back(table_of<ParameterGroup>(given, key, *item.as_table(), groups.list->size()));
        }
    }
    void operator()(const PathsOrMixture& either) const {
        either.list->clear();
        either.mixture->clear();
        const auto* array = given.node->as_array();
        const bool has_tables =
            array && std::any_of(array->begin(), array->end(), [](const toml::node& item) { return item.is_table(); });
        if (has_tables)
            assign_mixture(given, key, *array, *either.mixture);
        else
            *either.list = list_value(given, key, true);
    }
    void operator()(const PathsOrFraction& either) const {
        either.list->clear();
        *either.fraction = 0;
        if (!given.node->is_number()) {
            *either.list = list_value(given, key, true);
            return;
        }
        const double fraction = number_value(given, key);
        if (fraction <= 0 || fraction >= 1)
            throw usage_error(
                "{}{} = {}: a fraction lies between 0 and 1, both excluded; omit the key for no validation data",
                given.place, key.path, fraction);
        *either.fraction = fraction;
    }
    void operator()(const SwitchOrWord& either) const {
        const auto& [value, words] = either.choice;
        if (const auto* is_on = given.node->as_boolean()) {
            *value = is_on->get() ? 1 : 0;
            return;
        }
        const auto* text = given.node->as_string();
        const auto word = text ? std::find(words.begin() + 2, words.end(), text->get()) : words.end();
        if (word == words.end()) refuse_type(given, key);
        *value = static_cast<unsigned char>(word - words.begin());
    }
    void operator()(const CountOrAuto& value) const {
        if (const auto* text = given.node->as_string(); text && text->get() == "auto") {
            *value.count = value.automatic;
            return;
        }
        *value.count = integer_value(given, key);
        if (*value.count < value.least)
            throw usage_error("{}{} = {}: it must be an integer from {}, or \"auto\"", given.place, key.path,
                              *value.count, value.least);
    }
};

template <class Table>
Table table_of(const Given& given, const Key& key, const toml::table& table, std::size_t number) {
    Table result;
    std::vector<Key> keys = keys_of(result);
    for (Key& one : keys) one.path = fmt::format("{}[{}].{}", key.path, number, one.path);
    for (auto&& [name, node] : table) {
        Given value = given;
        value.path = fmt::format("{}[{}].{}", key.path, number, name.str());
        value.node = &node;
        value.line = name.source().begin.line;
        if (!given.origin.empty()) value.place = fmt::format("{}:{}: ", given.origin, value.line);
        const auto found =
            std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.path == value.path; });
        if (found == keys.end()) refuse_unknown_key(value.path, value.place, keys);
        std::visit(Assign{value, *found}, found->member);
    }
    for (const Key& one : keys)
        if (one.required && !table.contains(one.path.substr(one.path.rfind('.') + 1)))
            throw usage_error("{}{} is missing: {}", given.place, one.path, one.meaning);
    return result;
}

bool is_key(const std::string& path, const std::vector<Key>& keys) {
    return std::any_of(keys.begin(), keys.end(), [&](const Key& key) { return key.path == path; });
}

struct Collector {
    const std::string &origin, &place, &skipped;
    const std::vector<Key>& keys;
    std::vector<Given> found;

    void collect(const toml::table& table, const std::string& prefix) {
        for (auto&& [name, node] : table) {
            const std::string path = prefix + std::string(name.str());
            const std::uint32_t line = name.source().begin.line;
            const toml::table* inner = node.as_table();
            if (inner && path == skipped) continue;
            if (inner && !is_key(path, keys) && (!inner->empty() || is_section(path, keys)))
                collect(*inner, path + ".");
            else
                found.push_back(
                    {path, origin.empty() ? place : fmt::format("{}:{}: ", origin, line), &node, "", line, origin});
        }
    }
};

bool can_begin_key(char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '_' || letter == '-' || letter == '"' || letter == '\'';
}

// Of the header of a table that begins at `at`. toml++ 3.3 asserts that its key begins like one, or assumes it.
void check_header(std::string_view toml, std::size_t at, const std::string& place) {
    constexpr std::string_view blanks = " \t";
    std::size_t key = toml.find_first_not_of(blanks, at + 1);
    if (key < toml.size() && toml[key] == '[') key = toml.find_first_not_of(blanks, key + 1);
    if (key < toml.size() && toml[key] != ']' && !can_begin_key(toml[key]))
        throw usage_error("{} not valid TOML: the header of a table begins with what is no key", place);
}

}  // namespace

// The parser recurses for each part of a key, and a text of 200 kB can nest deeper than the stack is.
void check_nesting(std::string_view toml, const std::string& place) {
    constexpr int deepest = 64;
    int dots = 0, brackets = 0;
    bool begins_line = true;
    if (constexpr std::string_view byte_order_mark = "\xef\xbb\xbf"; toml.starts_with(byte_order_mark))
        toml.remove_prefix(byte_order_mark.size());
    for (std::size_t i = 0; i < toml.size(); ++i) {
        const char letter = toml[i];
        if (letter == '[' && begins_line && brackets == 0) check_header(toml, i, place);
        if (letter == '[' || letter == '{') ++brackets;
        if (letter == ']' || letter == '}') --brackets;
        begins_line = letter == '\n' || (begins_line && (letter == ' ' || letter == '\t' || letter == '\r'));
        if (letter == '#') {
            i = std::min(toml.find('\n', i), toml.size()) - 1;
        } else if (letter == '"' || letter == '\'') {
            const std::string_view three = toml.substr(i, 3), quote = toml.substr(i, 1);
            const bool lines = three == "\"\"\"" || three == "'''";
            const std::string_view end = lines ? three : quote;
            for (i += end.size(); i < toml.size() && toml.substr(i, end.size()) != end; ++i)
                if (letter == '"' && toml[i] == '\\') ++i;
            i += end.size() - 1;
            // The last of up to five quotes end a text of several lines; those before them belong to it.
            if (lines)
                for (int more = 0; more < 2 && i + 1 < toml.size() && toml[i + 1] == letter; ++more) ++i;
        } else if (letter == '.') {
            if (++dots > deepest) throw usage_error("{} a key has more than {} parts", place, deepest);
        } else if (letter == '\n' || letter == '=' || letter == ',' || letter == '[' || letter == '{') {
            dots = 0;
        }
    }
}

toml::table parse_toml(const std::string& toml, const std::string& place) {
    if (toml.starts_with("\x89HDF")) throw usage_error("{} an HDF5 file, where a TOML file is expected", place);
    check_nesting(toml, place);
    try {
        return toml::parse(toml);
    } catch (const toml::parse_error& error) {
        const bool in_file = place.back() == ':';
        const auto at = error.source().begin;
        const std::string problem{error.description()};
        // A word without quotes is the commonest slip, and TOML reports it as a broken boolean, date or number.
        const bool value = problem.find("table") == std::string::npos && problem.find("key") == std::string::npos;
        throw usage_error("{}{} not valid TOML: {}{}", place, in_file ? fmt::format("{}:{}:", at.line, at.column) : "",
                          problem, value ? " (a text needs quotes)" : "");
    }
}

std::vector<Given> collect(const toml::table& table, const std::string& prefix, const std::string& origin,
                           const std::string& place, const std::vector<Key>& keys, const std::string& skipped) {
    Collector collector{origin, place, skipped, keys, {}};
    collector.collect(table, prefix);
    std::vector<Given>& found = collector.found;
    std::stable_sort(found.begin(), found.end(), [](const Given& a, const Given& b) { return a.line < b.line; });
    return found;
}

void assign(const Given& given, const Key& key) {
    std::visit(Assign{given, key}, key.member);
    if (key.given) *key.given = true;
}

void read_keys(const std::string& toml, const std::string& origin, std::vector<Key> keys, const std::string& where,
               bool others_too) {
    const toml::table table = parse_toml(toml, origin + ":");
    const std::string prefix = where.empty() ? "" : where + ".";
    const toml::table* wanted = where.empty() ? &table : table.at_path(where).as_table();
    if (!wanted) return;
    for (Key& key : keys) key.path = prefix + key.path;
    std::set<std::string> found;
    for (const Given& given : collect(*wanted, prefix, origin, "", keys, "")) {
        found.insert(given.path);
        const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.path == given.path; });
        if (key != keys.end())
            assign(given, *key);
        else if (!others_too)
            refuse_unknown_key(given.path, given.place, keys);
    }
    std::string missing;
    int count = 0;
    for (const Key& key : keys)
        if (key.required && found.count(key.path) == 0)
            missing += fmt::format("{}{} ({})", count++ == 0 ? "" : ", ", key.path, key.meaning);
    if (count > 0)
        throw usage_error("{}: {}{} missing: {}", origin, count, count == 1 ? " key is" : " keys are", missing);
}

std::size_t count_tables(const std::string& toml, const std::string& origin, const std::string& where) {
    const toml::table table = parse_toml(toml, origin + ":");
    const auto list = table.at_path(where);
    if (!list) return 0;
    if (!list.is_array_of_tables())
        throw usage_error("{}: {} is a list of tables: write [[{}]] before each", origin, where, where);
    return list.as_array()->size();
}

}  // namespace lockstep::config
