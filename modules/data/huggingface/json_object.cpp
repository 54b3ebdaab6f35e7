#include "data/huggingface/json_object.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"

namespace lockstep::data::huggingface {
namespace {

constexpr std::size_t most_bytes = std::size_t{128} << 20, most_values = 8'000'000;
constexpr int most_depth = 32;

bool says_nothing(const Json& value) {
    return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_string() && value == "");
}

}  // namespace

Json bounded_json(const std::string& text, const std::string& origin) {
    if (text.size() > most_bytes)
        throw damaged_error("{} is too large: {} bytes; the limit is {}", origin, text.size(), most_bytes);
    if (nests_deeper(text, most_depth))
        throw damaged_error("{} is damaged: nested more than {} deep", origin, most_depth);
    std::size_t values = 0;
    const auto bounded = [&](int, Json::parse_event_t, Json&) {
        if (++values > most_values) throw damaged_error("{} is damaged: more than {} values", origin, most_values);
        return true;
    };
    try {
        return Json::parse(text, bounded);
    } catch (const Json::parse_error& problem) {
        throw damaged_error("{} is damaged: it is not JSON at byte {}", origin, problem.byte);
    } catch (const Json::exception& problem) {
        throw damaged_error("{} is damaged: {}", origin, problem.what());
    }
}

JsonObject::JsonObject(const Json& value, std::string origin, std::string key)
    : value_(&value), origin_(std::move(origin)), key_(std::move(key)) {
    if (!value.is_object())
        throw damaged_error("{} is damaged: {} is not an object", origin_, key_.empty() ? "the top level" : key_);
}

std::string JsonObject::key(std::string_view name) const {
    return key_.empty() ? std::string(name) : key_ + "." + std::string(name);
}

const Json* JsonObject::find(const char* name) const {
    const auto found = value_->find(name);
    return found == value_->end() || found->is_null() ? nullptr : &*found;
}

namespace {
const Json& checked(const JsonObject& object, const char* name, Json::value_t type, const char* meaning) {
    const Json* value = object.find(name);
    if (!value || value->type() != type)
        throw damaged_error("{} is damaged: {} is {}", object.origin(), object.key(name),
                            value ? std::string("not ") + meaning : "missing");
    return *value;
}
}  // namespace

const Json& JsonObject::array(const char* name) const {
    return checked(*this, name, Json::value_t::array, "an array");
}

JsonObject JsonObject::object(const char* name) const {
    return {checked(*this, name, Json::value_t::object, "an object"), origin_, key(name)};
}

std::string JsonObject::text(const char* name) const {
    return checked(*this, name, Json::value_t::string, "text").get<std::string>();
}

bool JsonObject::flag(const char* name) const {
    return checked(*this, name, Json::value_t::boolean, "true or false").get<bool>();
}

bool JsonObject::flag_or(const char* name, bool otherwise) const {
    return find(name) ? flag(name) : otherwise;
}

std::int32_t JsonObject::number(const char* name, std::int32_t most) const {
    const Json& value = checked(*this, name, Json::value_t::number_unsigned, "a non-negative whole number");
    if (value.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
        throw damaged_error("{} is damaged: {} is {}; the limit is {}", origin_, key(name), value.dump(), most);
    return value.get<std::int32_t>();
}

void JsonObject::allow(std::initializer_list<std::string_view> names) const {
    for (const auto& [name, value] : value_->items())
        if (std::find(names.begin(), names.end(), name) == names.end() && !says_nothing(value))
            throw usage_error("{}: {} is not supported; use another tokenizer", origin_, key(name));
}

}  // namespace lockstep::data::huggingface
