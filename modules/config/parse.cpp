#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "base/error.hpp"
#include "base/format.hpp"
#include "config/keys.hpp"

namespace lockstep::config {

namespace {

// One value that was given: where, for which key, and, from the command line, its text as typed.
struct Given {
    std::string path, place;
    const toml::node* node;
    std::string typed;
    std::uint32_t line = 0;
};

[[noreturn]] void refuse_type(const Given& given, const Key& key) {
    const std::string wanted = type_of(key);
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
    if (const auto* real = given.node->as_floating_point(); real && std::holds_alternative<std::int64_t*>(key.member)) {
        const double value = real->get();
        if (value == std::floor(value) && std::abs(value) < 1e15)
            throw usage_error("{}{} is {}, but an integer is wanted: write {:.0f}", given.place, key.path, found,
                              value);
    }
    throw usage_error("{}{} is {}, but the value wanted is: {}", given.place, key.path, found, wanted);
}

// A bare word on the command line that TOML takes for something else is still the text that was typed: --set
// run.name=7.
std::string text_value(const Given& given, const Key& key) {
    if (const auto* text = given.node->as_string()) return text->get();
    if (!given.typed.empty() && !given.node->is_array() && !given.node->is_table()) return given.typed;
    refuse_type(given, key);
}

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
    if (!std::isfinite(value)) throw usage_error("{}{} = {}: a finite number is wanted", given.place, key.path, value);
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
            throw usage_error("{}{} holds an item that is not text; the value wanted is: {}", given.place, key.path,
                              type_of(key));
        list.push_back(text->get());
    }
    return list;
}

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
    void operator()(bool* member) const {
        const auto* value = given.node->as_boolean();
        if (!value) refuse_type(given, key);
        *member = value->get();
    }
    void operator()(std::int64_t* member) const { *member = integer_value(given, key); }
    void operator()(std::uint64_t* member) const {
        const std::int64_t value = integer_value(given, key);
        if (value < 0) throw usage_error("{}{} = {}: an integer from 0 is wanted", given.place, key.path, value);
        *member = static_cast<std::uint64_t>(value);
    }
    void operator()(double* member) const { *member = number_value(given, key); }
    void operator()(std::vector<std::string>* member) const { *member = list_value(given, key, false); }
    void operator()(const Paths& paths) const { *paths.list = list_value(given, key, true); }
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
                "{}{} = {}: a fraction lies between 0 and 1, both excluded; for no validation data leave the key out",
                given.place, key.path, fraction);
        *either.fraction = fraction;
    }
    void operator()(const CountOrAuto& value) const {
        if (const auto* text = given.node->as_string(); text && text->get() == "auto") {
            *value.count = 0;
            return;
        }
        *value.count = integer_value(given, key);
        if (*value.count < 1)
            throw usage_error("{}{} = {}: an integer from 1 is wanted, or \"auto\"", given.place, key.path,
                              *value.count);
    }
};

// The known key a misspelt or misplaced one most likely means, or "".
std::string suggestion(const std::string& path, const std::vector<Key>& keys) {
    const std::size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
    std::vector<std::string> full, lasts, section_lasts;
    for (const Key& key : keys) {
        full.push_back(key.path);
        lasts.push_back(key.last_part());
        if (key.section() == section) section_lasts.push_back(key.last_part());
    }
    if (const std::string near = nearest_name(last, section_lasts); !near.empty()) return section + "." + near;
    if (const std::string near = nearest_name(last, lasts); !near.empty()) {
        std::vector<std::string>
            same;  // several sections may have a key of that name: the one whose section is nearest
        for (const Key& key : keys)
            if (key.last_part() == near) same.push_back(key.path);
        const std::string nearest = nearest_name(path, same);
        return nearest.empty() ? same.front() : nearest;
    }
    return nearest_name(path, full);
}

bool is_section(const std::string& path, const std::vector<Key>& keys) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const Key& key) { return key.path.compare(0, path.size() + 1, path + ".") == 0; });
}

[[noreturn]] void refuse_unknown(const Given& given, const std::vector<Key>& keys) {
    if (is_section(given.path, keys))
        throw usage_error("{}{} is a section and holds keys, not a value of its own", given.place, given.path);
    const std::string near = suggestion(given.path, keys);
    if (near.empty())
        throw usage_error("{}unknown key {}; docs/run-description.md lists the keys", given.place, given.path);
    throw usage_error("{}unknown key {}; did you mean {}?", given.place, given.path, near);
}

class Reader {
  public:
    Reader() : keys_(keys_of(description_)) {}

    void read_file(const std::string& toml, const std::string& origin) {
        const toml::table& table = parse(toml, origin + ":");
        std::vector<Given> found;
        collect(table, "", origin, "", found);
        std::stable_sort(found.begin(), found.end(), [](const Given& a, const Given& b) { return a.line < b.line; });
        given_.insert(given_.end(), found.begin(), found.end());
    }

    void read_setting(const std::string& setting) {
        const std::size_t equals = setting.find('=');
        const std::string path = trimmed(setting.substr(0, equals));
        if (equals == std::string::npos || path.empty())
            throw usage_error("--set {}: KEY=VALUE is wanted, for example --set schedule.steps=100", setting);
        const std::string typed = trimmed(setting.substr(equals + 1)), place = "--set " + setting + ": ";
        // What is not a TOML value is a bare word, unless it starts like a quoted text, a list or a table.
        const bool structured = typed.find_first_of("\"'[{") == 0;
        const toml::table* table = nullptr;
        if (typed.empty() || typed.find('\n') != std::string::npos)
            table = &parse("value = " + toml_text(typed), place);
        else if (structured)
            table = &parse("value = " + typed, place);
        else
            table = &parse_or_quote(typed, place);
        const toml::node& value = *table->get("value");
        std::vector<Given> found;
        const Given given{path, place, &value, structured ? "" : typed, 0};
        if (value.is_table() && !is_key(path))
            collect(*value.as_table(), path + ".", "", place, found);
        else
            found.push_back(given);
        given_.insert(given_.end(), found.begin(), found.end());
    }

    RunDescription finish() {
        // The last preset named decides; everything else that was given overrides it.
        for (const Given& given : given_) {
            if (given.path != "model.preset") continue;
            const Key& key = find(given);
            const std::string name = text_value(given, key);
            if (!name.empty()) description_.model = preset_values(name, given.place);
        }
        bool has_ramp = false;
        for (const Given& given : given_) {
            const Key& key = find(given);
            if (given.path != "model.preset" || text_value(given, key).empty())
                std::visit(Assign{given, key}, key.member);
            has_ramp = has_ramp || key.section() == "batch.ramp";
        }
        if (!has_ramp) description_.batch.ramp.reset();
        resolve(description_.model);
        if (description_.batch.length == 0) description_.batch.length = description_.model.context;
        return description_;
    }

  private:
    static std::string trimmed(const std::string& text) {
        const std::size_t first = text.find_first_not_of(" \t");
        return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
    }

    const toml::table& parse(const std::string& toml, const std::string& place) {
        try {
            tables_.push_back(std::make_unique<toml::table>(toml::parse(toml)));
            return *tables_.back();
        } catch (const toml::parse_error& error) {
            const bool in_file = place.back() == ':';
            const auto at = error.source().begin;
            const std::string problem{error.description()};
            // A word without quotes is the commonest slip, and TOML reports it as a broken boolean, date or number.
            const bool value = problem.find("table") == std::string::npos && problem.find("key") == std::string::npos;
            throw usage_error("{}{} not valid TOML: {}{}", place,
                              in_file ? fmt::format("{}:{}:", at.line, at.column) : "", problem,
                              value ? " (a text needs quotes)" : "");
        }
    }

    const toml::table& parse_or_quote(const std::string& typed, const std::string& place) {
        try {
            tables_.push_back(std::make_unique<toml::table>(toml::parse("value = " + typed)));
            return *tables_.back();
        } catch (const toml::parse_error&) {
            return parse("value = " + toml_text(typed), place);
        }
    }

    bool is_key(const std::string& path) const {
        return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.path == path; });
    }

    // Every leaf below `table`. An empty table that is no section, and a table where a key wants a value, count as
    // leaves.
    void collect(const toml::table& table, const std::string& prefix, const std::string& origin,
                 const std::string& place, std::vector<Given>& found) const {
        for (auto&& [name, node] : table) {
            const std::string path = prefix + std::string(name.str());
            const std::uint32_t line = name.source().begin.line;
            const toml::table* inner = node.as_table();
            if (inner && !origin.empty() && path == "plan") continue;  // what `lockstep plan` reads
            if (inner && !is_key(path) && (!inner->empty() || is_section(path, keys_)))
                collect(*inner, path + ".", origin, place, found);
            else
                found.push_back({path, origin.empty() ? place : fmt::format("{}:{}: ", origin, line), &node, "", line});
        }
    }

    const Key& find(const Given& given) const {
        for (const Key& key : keys_)
            if (key.path == given.path) return key;
        refuse_unknown(given, keys_);
    }

    RunDescription description_;
    std::vector<Key> keys_;  // points into description_
    std::vector<std::unique_ptr<toml::table>> tables_;
    std::vector<Given> given_;
};

}  // namespace

RunDescription parse_run_description(const std::string& toml, const std::string& origin,
                                     const std::vector<std::string>& settings) {
    Reader reader;
    reader.read_file(toml, origin);
    for (const std::string& setting : settings) reader.read_setting(setting);
    return reader.finish();
}

RunDescription read_run_description(const std::string& path, const std::vector<std::string>& settings) {
    if (path.empty()) return parse_run_description("", "", settings);
    if (std::filesystem::is_directory(path))
        throw usage_error("the run description {} is a folder; name a TOML file", path);
    errno = 0;
    std::ifstream file(path);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file.is_open() || file.bad())
        throw usage_error("the run description {} cannot be read: {}", path, system_error_text());
    return parse_run_description(text, path, settings);
}

}  // namespace lockstep::config
