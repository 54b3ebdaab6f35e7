#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "config/reader.hpp"

namespace lockstep::config {

namespace {

class Reader {
  public:
    // `foreign`: see parse_foreign_description.
    explicit Reader(bool foreign = false) : foreign_(foreign), keys_(keys_of(description_)) {
        for (Key& key : keys_) accept(key);
    }

    void read_file(const std::string& toml, const std::string& origin) {
        const toml::table& table = parse(toml, origin + ":");
        // What `lockstep plan` reads is no business of the run.
        const std::vector<Given> found = collect(table, "", origin, "", keys_, "plan");
        given_.insert(given_.end(), found.begin(), found.end());
    }

    void read_setting(const std::string& setting) {
        const std::size_t equals = setting.find('=');
        const std::string path = trimmed(setting.substr(0, equals));
        if (equals == std::string::npos || path.empty())
            throw usage_error("--set {}: write KEY=VALUE, for example --set schedule.steps=100", setting);
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
        std::vector<Given> found = {{path, place, &value, structured ? "" : typed, 0}};
        if (value.is_table() && !is_key(path)) found = collect(*value.as_table(), path + ".", "", place, keys_, "");
        given_.insert(given_.end(), found.begin(), found.end());
    }

    RunDescription finish(const ModelSource& model_of) {
        if (model_of && !has_whole_model()) {
            for (const Given& given : given_)
                if (given.path.starts_with("init.") || given.path.starts_with("run.") ||
                    given.path == "checkpoint.folder")
                    assign(given, find(given));
            if (!description_.init.from.empty()) description_.model = model_of(description_);
        }
        // The last preset named decides; everything else that was given overrides it.
        for (const Given& given : given_) {
            if (given.path != "model.preset") continue;
            const Key& key = find(given);
            const std::string name = text_value(given, key);
            if (!name.empty()) description_.model = preset_values(name, given.place);
        }
        keys_ = keys_of(description_);  // the preset's sections are where its values are now
        for (Key& key : keys_) accept(key);
        bool has_ramp = false;
        for (const Given& given : given_) {
            if (foreign_ && in_unknown_section(given.path)) continue;
            const Key& key = find(given);
            if (given.path != "model.preset" || text_value(given, key).empty()) assign(given, key);
            has_ramp = has_ramp || key.section() == "batch.ramp";
        }
        if (!has_ramp) description_.batch.ramp.reset();
        resolve(description_.model);
        for (ParameterGroup& group : description_.optimizer.groups)
            if (group.lr != ParameterGroup::not_given && description_.schedule.peak_lr > 0)
                group.rate_factor = group.lr / description_.schedule.peak_lr;
        if (description_.batch.length == 0) description_.batch.length = description_.model.context;
        return description_;
    }

  private:
    static std::string trimmed(const std::string& text) {
        const std::size_t first = text.find_first_not_of(" \t");
        return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
    }

    const toml::table& parse(const std::string& toml, const std::string& place) {
        tables_.push_back(std::make_unique<toml::table>(parse_toml(toml, place)));
        return *tables_.back();
    }

    const toml::table& parse_or_quote(const std::string& typed, const std::string& place) {
        const std::string toml = "value = " + typed;
        check_nesting(toml, place);
        try {
            tables_.push_back(std::make_unique<toml::table>(toml::parse(toml)));
            return *tables_.back();
        } catch (const toml::parse_error&) {
            return parse("value = " + toml_text(typed), place);
        }
    }

    // As those in run folders do.
    bool has_whole_model() const {
        return std::all_of(keys_.begin(), keys_.end(), [&](const Key& key) {
            return key.section() != "model" || key.later ||
                   std::any_of(given_.begin(), given_.end(),
                               [&](const Given& given) { return given.path == key.path; });
        });
    }

    bool is_key(const std::string& path) const {
        return std::any_of(keys_.begin(), keys_.end(), [&](const Key& key) { return key.path == path; });
    }

    const Key& find(const Given& given) const {
        for (const Key& key : keys_)
            if (key.path == given.path) return key;
        refuse_unknown_key(given.path, given.place, keys_);
    }

    // Names that are not registered here pass in a foreign description.
    void accept(Key& key) const {
        if (foreign_ && (key.path == "model.mixer" || key.path == "optimizer.kind")) key.words.clear();
    }

    bool in_unknown_section(const std::string& path) const {
        const std::size_t dot = path.rfind('.');
        return (path.starts_with("model.") || path.starts_with("optimizer.")) && dot != path.find('.') && !is_key(path);
    }

    bool foreign_;
    RunDescription description_;
    std::vector<Key> keys_;  // points into description_
    std::vector<std::unique_ptr<toml::table>> tables_;
    std::vector<Given> given_;
};

}  // namespace

std::string run_folder(const RunDescription& description) {
    return (std::filesystem::path(description.run.folder) / description.run.name).string();
}

std::string checkpoint_folder(const RunDescription& description) {
    return (std::filesystem::path(description.checkpoint.folder) / description.run.name).string();
}

std::string local_folder(const RunDescription& description) {
    if (description.checkpoint.local.empty()) return "";
    return (std::filesystem::path(description.checkpoint.local) / description.run.name).string();
}

RunDescription parse_run_description(const std::string& toml, const std::string& origin,
                                     const std::vector<std::string>& settings) {
    Reader reader;
    reader.read_file(toml, origin);
    for (const std::string& setting : settings) reader.read_setting(setting);
    return reader.finish({});
}

RunDescription parse_foreign_description(const std::string& toml, const std::string& origin) {
    Reader reader(true);
    reader.read_file(toml, origin);
    return reader.finish({});
}

RunDescription read_run_description(const std::string& path, const std::vector<std::string>& settings,
                                    const ModelSource& model_of) {
    Reader reader;
    if (!path.empty()) reader.read_file(read_text_file(path), path);
    for (const std::string& setting : settings) reader.read_setting(setting);
    return reader.finish(model_of);
}

}  // namespace lockstep::config
