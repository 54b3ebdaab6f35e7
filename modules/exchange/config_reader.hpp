// Reads a config.json key by key and keeps account of the keys that nobody asked for.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/json.hpp"

namespace lockstep::exchange {

// A key that is null counts as missing. A value of the wrong type is a damaged error that names file, key and value.
class ConfigReader {
  public:
    // `prefix`: of the keys in sentences ("rope_scaling.").
    ConfigReader(const Json& object, std::string path, std::string prefix = "");

    // Without `otherwise` a missing key is a usage error.
    std::int64_t size(const std::string& key);  // from 1 on; 0: usage error
    std::int64_t size(const std::string& key, std::int64_t otherwise);
    double number(const std::string& key);
    double number(const std::string& key, double otherwise);
    bool flag(const std::string& key, bool otherwise);
    std::string text(const std::string& key, const std::string& otherwise);
    const Json* value(const std::string& key);    // null if missing
    bool is_given(const std::string& key) const;  // also as null
    // An object's own reader; its unknown keys are this one's once adopt() has taken them.
    ConfigReader object(const std::string& key);
    void adopt(const ConfigReader& of_object);

    // Usage error where the key is not missing and not this value: what it asks for is not computed here.
    void require(const std::string& key, const Json& computed, const std::string& why);
    [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

    void pass_over(const std::vector<std::string>& keys);  // without effect on what a model computes
    std::vector<std::string> unknown() const;              // never asked for, with prefixes

  private:
    void need(const std::string& key);
    [[noreturn]] void refuse_type(const std::string& key, const char* needed) const;
    std::string shown_value(const std::string& key) const;

    const Json& object_;
    std::string path_, prefix_;
    std::set<std::string> known_;
    std::vector<std::string> adopted_;
};

}  // namespace lockstep::exchange
