#include "config/registry.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace lockstep::config {

namespace {

// Made at the first use: kinds register before main, in no known order.
std::vector<Kind>& kinds_of(Family family) {
    static std::vector<Kind> mixers, optimizers;
    return family == Family::mixer ? mixers : optimizers;
}

bool same(const OptionKey& a, const OptionKey& b) {
    return a.value == b.value && a.least == b.least && a.most == b.most && a.words == b.words;
}

bool add_kind(Family family, const Kind& kind) {
    if (find_kind(family, kind.name)) throw fault_error("{} is registered twice", kind.name);
    for (const OptionKey& declared : section_keys(family, kind.section))
        for (const OptionKey& key : kind.keys)
            if (key.name == declared.name && !same(key, declared))
                throw fault_error("{} declares the key {} of the section {} differently from another kind", kind.name,
                                  key.name, kind.section);
    std::vector<Kind>& kinds = kinds_of(family);
    const auto place = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& one) { return one.name > kind.name; });
    kinds.insert(place, kind);
    return true;
}

}  // namespace

OptionKey integer_key(const std::string& name, std::int64_t value, const std::string& meaning, double least,
                      double most) {
    return {name, value, meaning, least, most};
}

OptionKey number_key(const std::string& name, double value, const std::string& meaning, double least, double most) {
    return {name, value, meaning, least, most};
}

OptionKey flag_key(const std::string& name, bool value, const std::string& meaning) {
    return {name, value, meaning};
}

OptionKey word_key(const std::string& name, const std::string& value, const std::vector<std::string>& words,
                   const std::string& meaning) {
    OptionKey key{name, value, meaning};
    key.words = words;
    return key;
}

bool register_mixer(const Kind& kind) {
    return add_kind(Family::mixer, kind);
}

bool register_optimizer(const Kind& kind) {
    return add_kind(Family::optimizer, kind);
}

std::vector<std::string> kind_names(Family family) {
    std::vector<std::string> names;
    for (const Kind& kind : kinds_of(family)) names.push_back(kind.name);
    return names;
}

const Kind* find_kind(Family family, const std::string& name) {
    for (const Kind& kind : kinds_of(family))
        if (kind.name == name) return &kind;
    return nullptr;
}

std::vector<std::string> names_of_section(Family family, const std::string& section) {
    std::vector<std::string> names;
    for (const Kind& kind : kinds_of(family))
        if (kind.section == section) names.push_back(kind.name);
    return names;
}

std::vector<std::string> kind_sections(Family family) {
    std::set<std::string> sections;
    for (const Kind& kind : kinds_of(family))
        if (!kind.keys.empty()) sections.insert(kind.section);
    return {sections.begin(), sections.end()};
}

std::vector<OptionKey> section_keys(Family family, const std::string& section) {
    std::vector<OptionKey> keys;
    for (const Kind& kind : kinds_of(family)) {
        if (kind.section != section) continue;
        for (const OptionKey& key : kind.keys)
            if (std::none_of(keys.begin(), keys.end(), [&](const OptionKey& one) { return one.name == key.name; }))
                keys.push_back(key);
    }
    return keys;
}

Options::Options(const std::vector<OptionKey>& keys) {
    for (const OptionKey& key : keys) values_.push_back({key.name, key.value});
}

void Options::set(const std::string& name, OptionValue value) {
    if (find(name).value.index() != value.index()) refuse_type(name);
    for (Value& entry : values_)
        if (entry.name == name) entry.value = std::move(value);
}

const Options::Value& Options::find(const std::string& name) const {
    for (const Value& value : values_)
        if (value.name == name) return value;
    throw fault_error("the key {} is not registered", name);
}

void Options::refuse_type(const std::string& name) {
    throw fault_error("the key {} is registered with another type", name);
}

Options OptionSections::at(const std::string& section) const {
    const auto found = sections_.find(section);
    return found == sections_.end() ? Options(section_keys(family_, section)) : found->second;
}

Options& OptionSections::change(const std::string& section) {
    return sections_.try_emplace(section, section_keys(family_, section)).first->second;
}

bool OptionSections::operator==(const OptionSections& other) const {
    std::set<std::string> sections;
    for (const auto& [section, options] : sections_) sections.insert(section);
    for (const auto& [section, options] : other.sections_) sections.insert(section);
    return std::all_of(sections.begin(), sections.end(),
                       [&](const std::string& section) { return at(section) == other.at(section); });
}

}  // namespace lockstep::config
