#include "analysis/load/description.hpp"

#include "base/error.hpp"
#include "config/reader.hpp"

namespace lockstep::analysis {

toml::table description_table(const std::string& text) {
    try {
        return config::parse_toml(text, "the description:");
    } catch (const Error&) {
        return {};
    }
}

}  // namespace lockstep::analysis
