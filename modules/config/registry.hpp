// The names that are no closed set: mixers (model.mixer) and optimizers (optimizer.kind). Whoever implements one
// registers it here with the keys of its section, before main or at the start of a test. Reading, printing, comparing
// and suggesting names then work for them as for all other keys.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::config {

struct LayerShape;
struct ModelDescription;

using OptionValue = std::variant<std::int64_t, double, bool>;

// One key of a section: its default (16, 0.5, false) says its type.
struct OptionKey {
    std::string name;
    OptionValue value;
    std::string meaning;                                 // one sentence, a row of the documentation
    double least = -std::numeric_limits<double>::max();  // of a number, both allowed
    double most = std::numeric_limits<double>::max();
};

// What a name stands for; mixers and optimizers derive from it.
class Kind {
  public:
    // section: "ttt" for [model.ttt]; several kinds may share one. keys: what it adds to the section.
    explicit Kind(std::string name, std::string section = "", std::vector<OptionKey> keys = {})
        : name_(std::move(name)), section_(std::move(section)), keys_(std::move(keys)) {}
    Kind(const Kind&) = delete;
    Kind& operator=(const Kind&) = delete;
    virtual ~Kind() = default;
    const std::string& name() const { return name_; }
    const std::string& section() const { return section_; }
    const std::vector<OptionKey>& keys() const { return keys_; }

    // Of a mixer. Fills in what follows from other keys of the model; called by config::resolve.
    virtual void resolve(ModelDescription&) const {}
    // Of a mixer. Whether kv_heads, qk_norm, window, score_cap, bias = "qkv", position and rope_scaling mean something
    // to it. Where that is so for no mixer of a model, position = "rope" means "none", and the others are for the
    // mixers to refuse.
    virtual bool has_attention_keys() const { return true; }
    // Usage errors about the model alone; called by config::check for each layer that it mixes.
    virtual void check(const ModelDescription&, const LayerShape&) const {}

  private:
    std::string name_, section_;
    std::vector<OptionKey> keys_;
};

enum class Family { mixer, optimizer };
// Throws a fault where the name is taken, or where another kind of the section declares a key differently. The result
// is true, for static objects.
bool register_kind(Family family, std::unique_ptr<const Kind> kind);
const std::vector<std::unique_ptr<const Kind>>& kinds(Family family);  // in alphabetical order
const Kind* find_kind(Family family, const std::string& name);         // null: unknown
std::vector<std::string> kind_names(Family family);
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
