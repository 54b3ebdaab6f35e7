// Internal: JSON from outside, bounded and checked, with errors that name the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep::data::huggingface {

using Json = nlohmann::json;

// Bounds: 128 MiB, a depth of 32, 8 million values. Beyond them, or not JSON: damaged error.
Json bounded_json(const std::string& text, const std::string& origin);

// An object of a file, and where in it, such as "model" or "pre_tokenizer.pretokenizers[1]".
class JsonObject {
  public:
    JsonObject(const Json& value, std::string origin, std::string key);  // no object: damaged error

    const std::string& origin() const { return origin_; }
    std::string key(std::string_view name) const;
    const Json* find(const char* name) const;   // null: it is missing or null
    const Json& array(const char* name) const;  // the others: missing or of another type: damaged error
    JsonObject object(const char* name) const;
    std::string text(const char* name) const;
    bool flag(const char* name) const;
    bool flag_or(const char* name, bool otherwise) const;
    std::int32_t number(const char* name, std::int32_t most) const;  // from 0
    // Usage error for any other key that has a value other than null, false and "".
    void allow(std::initializer_list<std::string_view> names) const;

  private:
    const Json* value_;
    std::string origin_, key_;
};

}  // namespace lockstep::data::huggingface
