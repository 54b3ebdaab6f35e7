#include "train/product_choices.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "cluster/agree.hpp"
#include "kernels/counting_backend.hpp"
#include "kernels/cuda.hpp"
#include "layout/rank_share.hpp"
#include "model/count.hpp"
#include "optim/registry.hpp"
#include "train/launch.hpp"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// Times differ by as much from one measurement to the next: the first proposal keeps its place.
constexpr double least_gain = 0.98;

ProductChoice fastest(const std::vector<kernels::TimedAlgorithm>& timed) {
    const auto faster = [](const auto& a, const auto& b) { return a.seconds < b.seconds; };
    const auto best = std::min_element(timed.begin(), timed.end(), faster);
    const auto first = std::find_if(timed.begin(), timed.end(), [](const auto& one) { return one.first; });
    // The first may be one that cannot run.
    const auto& chosen = first == timed.end() || best->seconds < least_gain * first->seconds ? *best : *first;
    return {chosen.algorithm, chosen.seconds, first == timed.end() ? chosen.seconds : first->seconds,
            static_cast<std::int64_t>(timed.size())};
}

// A kind that a rank has and that has no choice yet, by the hash of library and kind.
struct Wanted {
    std::uint64_t hash;
    std::int64_t rank;
};

std::uint64_t hash_of(const std::string& library, const std::string& kind) {
    const std::string text = library + "\n" + kind;
    return hash64(text.data(), text.size());
}

// The lowest rank that wants each.
std::map<std::uint64_t, std::int64_t> ranks_to_time(const std::vector<std::string>& kinds, const std::string& library,
                                                    cluster::HostGroup& group) {
    std::vector<Wanted> own;
    for (const std::string& kind : kinds) own.push_back({hash_of(library, kind), group.rank()});
    const std::vector<char> bytes = group.all_gather_bytes(own.data(), own.size() * sizeof(Wanted));
    std::vector<Wanted> all(bytes.size() / sizeof(Wanted));
    if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
    std::map<std::uint64_t, std::int64_t> ranks;
    for (const Wanted& one : all) {
        const auto known = ranks.emplace(one.hash, one.rank).first;
        known->second = std::min(known->second, one.rank);
    }
    return ranks;
}

}  // namespace

ProductAgreement agree_on_products(kernels::ProductTuner& tuner, ProductChoices choices, cluster::HostGroup& group) {
    ProductAgreement agreement;
    const std::string library = tuner.library();
    std::vector<std::string> missing;
    cluster::together(group, [&] {
        const auto& known = choices[library];
        for (const std::string& kind : tuner.kinds()) {
            const auto found = known.find(kind);
            if (found == known.end() || !tuner.accepts(kind, found->second.algorithm)) missing.push_back(kind);
        }
    });
    agreement.kept = static_cast<std::int64_t>(tuner.kinds().size() - missing.size());
    agreement.left_out = group.all_maximum(tuner.left_out());
    const auto ranks = ranks_to_time(missing, library, group);
    std::string own;  // a line for each kind that this rank times
    cluster::together(group, [&] {
        for (const std::string& kind : missing) {
            if (ranks.at(hash_of(library, kind)) != group.rank()) continue;
            const std::vector<kernels::TimedAlgorithm> timed = tuner.time(kind);
            if (timed.empty()) continue;  // none runs; its first use says why
            const ProductChoice choice = fastest(timed);
            const bool first = std::any_of(timed.begin(), timed.end(), [&](const kernels::TimedAlgorithm& one) {
                return one.first && one.algorithm == choice.algorithm;
            });
            own +=
                Json{{"library", library}, {"kind", kind}, {"choice", json_of(choice)}, {"first", first}}.dump() + "\n";
        }
    });
    const std::vector<char> bytes = group.all_gather_bytes(own.data(), own.size());
    std::istringstream lines(std::string(bytes.begin(), bytes.end()));
    for (std::string line; std::getline(lines, line);) {
        const Json json = Json::parse(line);
        const ProductChoice choice = choice_of(json.at("choice"));
        choices[json.at("library").get<std::string>()][json.at("kind").get<std::string>()] = choice;
        ++agreement.timed;
        if (json.at("first").get<bool>()) continue;
        ++agreement.not_first;
        agreement.gain = std::max(agreement.gain, choice.first_seconds / choice.seconds);
    }
    for (const auto& [kind, choice] : choices[library]) tuner.use(kind, choice.algorithm);
    agreement.choices = std::move(choices);
    return agreement;
}

namespace {

// The file of earlier launches; one that is damaged is set aside.
enum class FileState { absent, damaged, whole };
struct Kept {
    FileState file = FileState::absent;
    ProductChoices choices{};
};

Kept read_choices(const Launch& launch) {
    const std::optional<std::string> text = watch::RunFolder::read_products(launch.folders.run_path);
    if (!text) return {};
    try {
        return {FileState::whole, product_choices_from_json(*text)};
    } catch (const Error& error) {
        log::warning(
            "{}/products.json is damaged: {}; it is moved to products.json.broken and matrix products are timed again: "
            "results may differ from earlier ones in the last bits",
            launch.folders.run_path, error.what());
        watch::RunFolder::set_products_aside(launch.folders.run_path);
        return {FileState::damaged};
    }
}

void say(const Launch& launch, const Kept& kept, const ProductAgreement& agreement, double seconds,
         const std::string& library) {
    const std::string file = launch.folders.run_path + "/products.json";
    const bool resumed = !launch.resume.path.empty();
    if (agreement.timed > 0 && kept.file == FileState::absent && resumed)
        log::info(
            "{} is missing: matrix products are timed, and results may differ from those of earlier launches in the "
            "last bits",
            file);
    if (agreement.timed > 0 && kept.choices.contains(library) && resumed)
        log::info(
            "{} lacks {} of the matrix products: these are timed, and results may differ from those of earlier "
            "launches in the last bits",
            file, agreement.timed);
    if (agreement.timed > 0 && !kept.choices.empty() && !kept.choices.contains(library))
        log::warning(
            "{} was made with {}; this is {}: matrix products are timed again, and results may differ from earlier "
            "ones in the last bits",
            file, kept.choices.begin()->first, library);
    if (agreement.left_out > 0)
        log::info("cannot time {} matrix product{} in the memory left by the model: cuBLASLt's first proposal is used",
                  agreement.left_out, plural(agreement.left_out));
    if (agreement.timed == 0) {
        if (agreement.kept > 0)
            log::info("matrix products: {} kind{} as in {}", agreement.kept, plural(agreement.kept), file);
        return;
    }
    const std::string gain = agreement.not_first > 0 ? fmt::format(", up to {:.2f} times as fast", agreement.gain) : "";
    log::info("matrix products: {} kind{} timed in {:.2f} s; {} use an algorithm other than the first{}",
              agreement.timed, plural(agreement.timed), seconds, agreement.not_first, gain);
}

}  // namespace

void choose_products(const Launch& launch, const model::ParameterSet& parameters) {
    const config::RunDescription& description = launch.description;
    if (!launch.devices.on_gpu() || !description.run.tune_products) return;
    const double start = seconds_now();
    model::CountedShape shape;
    shape.device = DeviceKind::cuda;
    shape.type = layout::compute_type(description.precision.compute);
    shape.pass = {launch.plan.micro, description.batch.length / launch.grid.context};
    shape.tensor = launch.grid.tensor;
    shape.context = launch.grid.context;
    shape.divides_rows = description.parallel.sequence;
    shape.recompute = description.parallel.recompute;
    const bool sums_up = !parameters.divides_gradients() &&
                         launch.plan.micro_batches > layout::lanes_of_replica(description, launch.grid);
    const model::CountedRank rank{
        launch.plan.chunks, {launch.groups.place.tensor, launch.grid.tensor}, parameters.owned(), sums_up};
    std::unique_ptr<kernels::ProductTuner> tuner;
    Kept kept;
    cluster::together(*launch.control, [&] {
        tuner = kernels::make_product_tuner(*launch.devices.backend, [&](kernels::CountingBackend& backend) {
            model::run_imaginary(backend, description.model, rank, shape);
            const optim::OptimizerType& optimizer = optim::optimizer_of(description.optimizer);
            for (const auto& parameter : parameters.descriptions())
                if (parameter.trained)
                    optimizer.issue_products(backend, description.optimizer, parameter, parameters.compute_type());
        });
        if (launch.root()) kept = read_choices(launch);
    });
    const ProductChoices before = product_choices_from_json(launch.control->broadcast_text(to_json(kept.choices), 0));
    const ProductAgreement agreement = agree_on_products(*tuner, before, *launch.control);
    if (!launch.root()) return;
    say(launch, kept, agreement, seconds_now() - start, tuner->library());
    if (agreement.timed > 0) watch::RunFolder::write_products(launch.folders.run_path, to_json(agreement.choices));
}

}  // namespace lockstep::train
