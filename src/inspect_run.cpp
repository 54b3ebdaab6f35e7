#include "inspect_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/plural.hpp"
#include "command.hpp"
#include "config/plain_value.hpp"
#include "hdf5/hdf5.hpp"
#include "layout/memory_plan.hpp"
#include "layout/rank_share.hpp"
#include "layout/run_layout.hpp"
#include "model/count.hpp"
#include "model/frozen.hpp"
#include "model/parameters.hpp"
#include "optim/weight_groups.hpp"
#include "parameter_list.hpp"
#include "run_status.hpp"
#include "train/initial_model.hpp"

namespace lockstep::commands {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

}  // namespace

FileKind kind_of(const std::string& path, bool has_keys) {
    std::error_code none;
    const fs::file_status status = fs::status(path, none);
    if (path.empty() || !fs::exists(status)) return path.ends_with(".toml") ? FileKind::description : FileKind::other;
    if (fs::is_directory(status)) return exchange::is_folder(path) ? FileKind::model_folder : FileKind::run_folder;
    const bool hdf5 = fs::is_regular_file(status) && hdf5::has_signature(path);  // a pipe cannot be read twice
    return !hdf5 && (has_keys || path.ends_with(".toml")) ? FileKind::description : FileKind::other;
}

namespace {

// What the rank needs that needs most, on a kind of device; assuming one replica where parallel.data = "auto".
struct PlannedMemory {
    std::string device, problem;  // "" or why there is no plan
    layout::MemoryPlan plan;
};

PlannedMemory plan_memory(const config::RunDescription& description, const config::Grid& grid,
                          config::DeviceChoice device) {
    PlannedMemory memory{std::string(config::word_of(device)), layout::why_impossible(description, grid), {}};
    const bool is_cpu = device == config::DeviceChoice::cpu;
    if (is_cpu && description.precision.compute == config::Precision::fp16)
        memory.problem = "CPUs do not compute in fp16";
    if (!memory.problem.empty()) return memory;
    const auto ends = [](std::int64_t size) {
        return size == 1 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, size - 1};
    };
    try {  // a mixer may refuse a device
        for (std::int64_t stage = 0; stage < grid.pipeline; ++stage)
            for (const std::int64_t tensor : ends(grid.tensor)) {
                std::vector<cluster::GridPlace> places = {
                    layout::largest_share(description, grid, {tensor, 0, 0, stage}).place};
                for (const std::int64_t context : ends(grid.context))
                    for (const std::int64_t data : ends(grid.data)) places.push_back({tensor, context, data, stage});
                for (const cluster::GridPlace& place : places) {
                    const layout::MemoryPlan plan =
                        layout::plan_memory(description, grid, place, is_cpu ? DeviceKind::cpu : DeviceKind::cuda);
                    if (plan.planned() > memory.plan.planned()) memory.plan = plan;
                }
            }
    } catch (const Error& error) {
        memory.problem = error.what();
    }
    return memory;
}

std::vector<PlannedMemory> plan_memory(const config::RunDescription& description) {
    config::Grid grid = description.parallel;
    grid.data = std::max<std::int64_t>(grid.data, 1);
    std::vector<PlannedMemory> list;
    for (const config::DeviceChoice device : {config::DeviceChoice::cpu, config::DeviceChoice::cuda})
        if (description.run.device == config::DeviceChoice::any || description.run.device == device)
            list.push_back(plan_memory(description, grid, device));
    return list;
}

Json to_json(const std::vector<PlannedMemory>& list) {
    Json json = Json::object();
    for (const auto& [device, problem, plan] : list) {
        if (!problem.empty())
            json[device] = {{"problem", problem}};
        else
            json[device] = {{"parameters", plan.parameters},
                            {"gradients", plan.gradients},
                            {"optimizer_state", plan.optimizer_state},
                            {"activations", plan.activations},
                            {"workspace", plan.workspace},
                            {"together", plan.planned()}};
        if (problem.empty() && plan.offloaded > 0) json[device]["offloaded"] = plan.offloaded;
    }
    return json;
}

}  // namespace

int inspect_description(const std::string& path, const std::vector<std::string>& settings,
                        const std::vector<std::string>& keys, TableFormat format, bool details) {
    const config::RunDescription description = train::read_run(path, settings, *cluster::make_solo_group());
    if (!keys.empty()) {
        std::vector<std::string> values;
        for (const std::string& key : keys) values.push_back(config::plain_value(description, key));
        print_result(lines_of(values));
        return 0;
    }
    config::check(description);
    model::check_frozen(description.model);
    optim::check_groups(description.optimizer, description.model);
    const std::int64_t count = model::parameter_count(description.model),
                       trained = model::trained_parameter_count(description.model);
    const std::string run_folder = config::run_folder(description),
                      checkpoints = config::checkpoint_folder(description);
    if (format == TableFormat::json) {
        const Json json = {{"description", config::to_toml(description)},
                           {"parameters", count},
                           {"trained_parameters", trained},
                           {"tensors", parameter_list(description.model)},
                           {"run_folder", run_folder},
                           {"checkpoint_folder", checkpoints},
                           {"memory_bytes", to_json(plan_memory(description))}};
        print_result("{}\n", json.dump(2));
        return 0;
    }
    // As comments, so that the output is itself a run description.
    print_result("{}\n# {} parameters{}\n# run folder: {}\n# checkpoints: {}\n", config::to_toml(description),
                 with_commas(count), trained < count ? fmt::format(", {} of them trained", with_commas(trained)) : "",
                 run_folder, checkpoints);
    for (const auto& [device, problem, plan] : plan_memory(description))
        print_result("# memory of the fullest rank, {}{}: {}\n", device,
                     description.parallel.data == 0 ? ", one replica" : "",
                     problem.empty() ? layout::memory_text(plan) : "not planned, since " + problem);
    if (!details) return 0;
    std::istringstream lines(parameter_table(description.model).print(TableFormat::text));
    print_result("#\n");
    for (std::string line; std::getline(lines, line);) print_result("# {}\n", line);
    return 0;
}

int print_most_ranks(const std::string& path, const std::vector<std::string>& settings, std::int64_t limit) {
    const config::RunDescription description = train::read_run(path, settings, *cluster::make_solo_group());
    config::check(description);
    const std::int64_t ranks = layout::most_ranks(description, limit);
    if (ranks == 0) {
        config::Grid fewest = description.parallel;
        fewest.data = std::max<std::int64_t>(fewest.data, 1);
        const std::string why = layout::why_impossible(description, fewest);
        throw usage_error("{} cannot be trained on {} rank{} or fewer: {}", path, limit, plural(limit),
                          why.empty() ? fmt::format("its grid needs {}", fewest.ranks()) : why);
    }
    print_result("{}\n", ranks);
    return 0;
}

}  // namespace lockstep::commands
