#include "config/quantities.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "base/error.hpp"
#include "config/reader.hpp"

namespace lockstep::config {
namespace {

// As keys, so that they are read and printed like those of run descriptions. `where`: "plan", or "".
std::vector<Key> keys_of(const std::vector<Quantity>& quantities, const std::string& where) {
    std::vector<Key> keys;
    for (const Quantity& quantity : quantities) {
        const Member member = std::visit([](const auto& value) { return Member(value); }, quantity.value);
        Key key{(where.empty() ? "" : where + ".") + quantity.path, member, quantity.meaning, quantity.words,
                quantity.required};
        key.least = quantity.least;
        key.most = quantity.most;
        keys.push_back(key);
    }
    return keys;
}

}  // namespace

std::size_t count_tables(const std::string& toml, const std::string& origin, const std::string& where) {
    const toml::table table = parse_toml(toml, origin + ":");
    const auto list = table.at_path(where);
    if (!list) return 0;
    if (!list.is_array_of_tables())
        throw usage_error("{}: {} is a list of tables: write [[{}]] before each", origin, where, where);
    return list.as_array()->size();
}

void read_quantities(const std::string& toml, const std::string& origin, std::vector<Quantity>& quantities,
                     const std::string& where, bool others_too) {
    const toml::table table = parse_toml(toml, origin + ":");
    const toml::table* wanted = where.empty() ? &table : table.at_path(where).as_table();
    if (!wanted) return;
    const std::vector<Key> keys = keys_of(quantities, where);
    std::set<std::string> found;
    for (const Given& given : collect(*wanted, where.empty() ? "" : where + ".", origin, "", keys, "")) {
        found.insert(given.path);
        const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.path == given.path; });
        if (key != keys.end())
            assign(given, *key);
        else if (!others_too)
            refuse_unknown_key(given.path, given.place, keys);
    }
    for (const Key& key : keys)
        if (key.required && found.count(key.path) == 0)
            throw usage_error("{}: {} is missing: {}", origin, key.path, key.meaning);
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
    return print_keys(keys_of(quantities, ""), true);
}

}  // namespace lockstep::config
