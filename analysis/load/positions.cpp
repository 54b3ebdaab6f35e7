#include "analysis/load/positions.hpp"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_number.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"

namespace lockstep::analysis {

std::vector<PositionLoss> losses_by_position(const std::string& path) {
    std::error_code ignored;
    std::filesystem::path folder = path;
    if (!std::filesystem::is_directory(folder, ignored)) folder = folder.parent_path();
    const std::string text = text_of_regular_file((folder / "positions.json").string());
    std::vector<PositionLoss> losses;
    try {
        const auto file = parse_json<nlohmann::json>(text);
        for (const nlohmann::json& range : file.at("positions")) {
            if (range.at("validation_loss").is_null()) continue;  // where no token has a target
            for (const char* end : {"first_position", "last_position"})
                if (!is_whole<std::int64_t>(range.at(end))) return {};
            const PositionLoss loss{range.at("first_position").get<std::int64_t>(),
                                    range.at("last_position").get<std::int64_t>(),
                                    range.at("validation_loss").get<double>()};
            const bool follows = losses.empty() || loss.first > losses.back().last;
            if (loss.first < 1 || loss.last < loss.first || !std::isfinite(loss.loss) || !follows) return {};
            losses.push_back(loss);
        }
    } catch (const nlohmann::json::exception&) {
        return {};
    }
    return losses;
}

}  // namespace lockstep::analysis
