// The names that are no closed set: mixers (model.mixer) and optimizers (optimizer.kind). Whoever implements one
// registers it here with the keys of its section, before main or at the start of a test. Reading, printing, comparing
// and suggesting names then work for them as for all other keys.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::config {

struct ModelDescription;

using OptionValue = std::variant<std::int64_t, double, bool, std::string>;

// One key of a section: its default says its type.
struct OptionKey {
    std::string name;
    OptionValue value;
    std::string meaning;                                 // one sentence, a row of the documentation
    double least = -std::numeric_limits<double>::max();  // of a number, both allowed
    double most = std::numeric_limits<double>::max();
    std::vector<std::string> words = {};  // of a text; empty: any
};
OptionKey integer_key(const std::string& name, std::int64_t value, const std::string& meaning,
                      double least = -std::numeric_limits<double>::max(),
                      double most = std::numeric_limits<double>::max());
OptionKey number_key(const std::string& name, double value, const std::string& meaning,
                     double least = -std::numeric_limits<double>::max(),
                     double most = std::numeric_limits<double>::max());
OptionKey flag_key(const std::string& name, bool value, const std::string& meaning);
OptionKey word_key(const std::string& name, const std::string& value, const std::vector<std::string>& words,
                   const std::string& meaning);

struct Kind {
    std::string name;                  // "ttt-linear"
    std::string section;               // "ttt" for [model.ttt]; several kinds may share one. "": it has no keys
    std::vector<OptionKey> keys = {};  // what it adds to the section
    // Of a mixer, called by config::resolve and config::check. Empty: nothing follows from other keys, nothing is
    // wrong.
    std::function<void(ModelDescription&)> resolve = {};
    std::function<void(const ModelDescription&)> check = {};
};

// Throw a fault where the name is taken, or where another kind of the section declares a key differently. The result
// is true, for static objects.
bool register_mixer(const Kind& kind);
bool register_optimizer(const Kind& kind);

enum class Family { mixer, optimizer };
std::vector<std::string> kind_names(Family family);  // in alphabetical order
inline std::vector<std::string> mixer_names() {
    return kind_names(Family::mixer);
}
inline std::vector<std::string> optimizer_names() {
    return kind_names(Family::optimizer);
}
const Kind* find_kind(Family family, const std::string& name);  // null: unknown
std::vector<std::string> names_of_section(Family family, const std::string& section);
std::vector<std::string> kind_sections(Family family);                           // in alphabetical order
std::vector<OptionKey> section_keys(Family family, const std::string& section);  // of all kinds that share it

// The values of one section. Reading a key that it does not have, or as another type, is a fault.
class Options {
  public:
    struct Value {
        std::string name;
        OptionValue value;
        bool given = false;  // by the user
        bool operator==(const Value& other) const { return name == other.name && value == other.value; }
    };
    explicit Options(const std::vector<OptionKey>& keys = {});

    std::int64_t integer(const std::string& name) const { return as<std::int64_t>(name); }
    double number(const std::string& name) const { return as<double>(name); }
    bool flag(const std::string& name) const { return as<bool>(name); }
    const std::string& word(const std::string& name) const { return as<std::string>(name); }
    bool given(const std::string& name) const { return find(name).given; }
    void set(const std::string& name, OptionValue value);  // of the key's type

    std::vector<Value>& values() { return values_; }  // in the order of the keys
    const std::vector<Value>& values() const { return values_; }
    bool operator==(const Options&) const = default;

  private:
    const Value& find(const std::string& name) const;
    template <class Type>
    const Type& as(const std::string& name) const {
        if (const auto* value = std::get_if<Type>(&find(name).value)) return *value;
        refuse_type(name);
    }
    [[noreturn]] static void refuse_type(const std::string& name);

    std::vector<Value> values_;
};

// The sections of a family, each with its registered keys. One that nobody changed has the defaults.
class OptionSections {
  public:
    explicit OptionSections(Family family) : family_(family) {}
    Options at(const std::string& section) const;
    Options& change(const std::string& section);
    bool operator==(const OptionSections& other) const;

  private:
    Family family_;
    std::map<std::string, Options> sections_;
};

}  // namespace lockstep::config
