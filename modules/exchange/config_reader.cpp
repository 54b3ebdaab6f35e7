#include "exchange/config_reader.hpp"

#include <cmath>

#include "base/error.hpp"

namespace lockstep::exchange {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 53;  // as far as every JSON program counts
const Json empty = Json::object();

}  // namespace

ConfigReader::ConfigReader(const Json& object, std::string path, std::string prefix)
    : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

const Json* ConfigReader::value(const std::string& key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::is_given(const std::string& key) const {
    return object_.contains(key);
}

void ConfigReader::need(const std::string& key) {
    if (!value(key)) throw usage_error("{} lacks {}{}", path_, prefix_, key);
}

std::int64_t ConfigReader::size(const std::string& key, std::int64_t otherwise) {
    const Json* found = value(key);
    if (!found) return otherwise;
    const auto given = found->is_number_integer() ? found->get<std::int64_t>() : -1;
    if (given < 0 || given > most) refuse_type(key, "a positive whole number");
    if (given == 0) refuse(key, "a size must be at least 1");
    return given;
}

std::int64_t ConfigReader::size(const std::string& key) {
    need(key);
    return size(key, 0);
}

double ConfigReader::number(const std::string& key) {
    need(key);
    return number(key, 0);
}

double ConfigReader::number(const std::string& key, double otherwise) {
    const Json* found = value(key);
    if (!found) return otherwise;
    if (!found->is_number() || !std::isfinite(found->get<double>())) refuse_type(key, "a number");
    return found->get<double>();
}

bool ConfigReader::flag(const std::string& key, bool otherwise) {
    const Json* found = value(key);
    if (!found) return otherwise;
    if (!found->is_boolean()) refuse_type(key, "true or false");
    return found->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& otherwise) {
    const Json* found = value(key);
    if (!found) return otherwise;
    if (!found->is_string()) refuse_type(key, "a string");
    return found->get<std::string>();
}

ConfigReader ConfigReader::object(const std::string& key) {
    const Json* found = value(key);
    if (found && !found->is_object()) refuse_type(key, "an object");
    return {found ? *found : empty, path_, prefix_ + key + "."};
}

void ConfigReader::adopt(const ConfigReader& of_object) {
    for (const std::string& key : of_object.unknown()) adopted_.push_back(key);
}

void ConfigReader::require(const std::string& key, const Json& computed, const std::string& why) {
    const Json* found = value(key);
    if (found && *found != computed) refuse(key, why);
}

void ConfigReader::refuse(const std::string& key, const std::string& why) const {
    throw usage_error("{}: {}{} = {}: {}", path_, prefix_, key, shown_value(key), why);
}

void ConfigReader::refuse_type(const std::string& key, const char* needed) const {
    throw damaged_error("{}: {}{} = {} is not {}", path_, prefix_, key, shown_value(key), needed);
}

std::string ConfigReader::shown_value(const std::string& key) const {
    const auto found = object_.find(key);
    return shown(found == object_.end() ? Json() : *found);
}

void ConfigReader::pass_over(const std::vector<std::string>& keys) {
    known_.insert(keys.begin(), keys.end());
}

std::vector<std::string> ConfigReader::unknown() const {
    std::vector<std::string> keys = adopted_;
    for (const auto& [key, value] : object_.items())
        if (!known_.contains(key)) keys.push_back(prefix_ + key);
    return keys;
}

}  // namespace lockstep::exchange
