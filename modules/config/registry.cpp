#include "config/registry.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace lockstep::config {

namespace {

using Kinds = std::vector<std::unique_ptr<const Kind>>;

// Made at the first use: kinds register before main, in no known order.
Kinds& kinds_of(Family family) {
    static Kinds mixers, optimizers;
    return family == Family::mixer ? mixers : optimizers;
}

}  // namespace

bool register_kind(Family family, std::unique_ptr<const Kind> kind) {
    if (find_kind(family, kind->name())) throw fault_error("{} is registered twice", kind->name());
    for (const OptionKey& declared : section_keys(family, kind->section()))
        for (const OptionKey& key : kind->keys())
            if (key.name == declared.name &&
                (key.value != declared.value || key.least != declared.least || key.most != declared.most))
                throw fault_error("{} declares the key {} of the section {} differently from another kind",
                                  kind->name(), key.name, kind->section());
    Kinds& all = kinds_of(family);
    const auto place =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one->name() > kind->name(); });
    all.insert(place, std::move(kind));
    return true;
}

const Kinds& kinds(Family family) {
    return kinds_of(family);
}

const Kind* find_kind(Family family, const std::string& name) {
    for (const auto& kind : kinds(family))
        if (kind->name() == name) return kind.get();
    return nullptr;
}

std::vector<std::string> kind_names(Family family) {
    std::vector<std::string> names;
    for (const auto& kind : kinds(family)) names.push_back(kind->name());
    return names;
}

std::vector<std::string> names_of_section(Family family, const std::string& section) {
    std::vector<std::string> names;
    for (const auto& kind : kinds(family))
        if (kind->section() == section) names.push_back(kind->name());
    return names;
}

std::vector<std::string> kind_sections(Family family) {
    std::set<std::string> sections;
    for (const auto& kind : kinds(family))
        if (!kind->keys().empty()) sections.insert(kind->section());
    return {sections.begin(), sections.end()};
}

std::vector<OptionKey> section_keys(Family family, const std::string& section) {
    std::vector<OptionKey> keys;
    for (const auto& kind : kinds(family)) {
        if (kind->section() != section) continue;
        for (const OptionKey& key : kind->keys())
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
