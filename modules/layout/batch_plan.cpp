#include "layout/batch_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/plural.hpp"

namespace lockstep::layout {

std::int64_t batch_after(const config::BatchSection& batch, std::int64_t samples) {
    if (!batch.ramp) return batch.global;
    const auto& ramp = *batch.ramp;
    const std::int64_t increments = (batch.global - ramp.start) / ramp.increment;
    if (increments == 0 || samples >= ramp.samples) return batch.global;
    // In whole numbers: samples / (ramp.samples / increments), rounded down.
    return ramp.start + std::min(increments, samples * increments / ramp.samples) * ramp.increment;
}

std::vector<std::int64_t> batch_sizes(const config::BatchSection& batch) {
    std::vector<std::int64_t> sizes;
    if (batch.ramp)
        for (std::int64_t size = batch.ramp->start; size < batch.global; size += batch.ramp->increment)
            sizes.push_back(size);
    sizes.push_back(batch.global);
    return sizes;
}

std::int64_t steps_for(const config::BatchSection& batch, double samples) {
    std::int64_t steps = 0, done = 0;
    for (; batch.ramp && done < batch.ramp->samples && static_cast<double>(done) < samples; ++steps)
        done += batch_after(batch, done);
    const double left = samples - static_cast<double>(done);
    return steps + std::max<std::int64_t>(0, std::llround(left / static_cast<double>(batch.global)));
}

std::int64_t micro_batch_size(const config::BatchSection& batch, const BatchParts& parts, std::int64_t multiple,
                              std::int64_t tokens_at_once, std::int64_t wanted) {
    const std::int64_t count = parts.count;
    const std::string all =
        parts.lanes ? fmt::format("{} lanes (parallel.lanes)", count) : fmt::format("{} replicas of the model", count);
    const char* each = parts.lanes ? "lane" : "replica of the model";
    // A micro-batch divides every share; so does it their greatest common divisor.
    std::int64_t common = 0;
    for (const std::int64_t size : batch_sizes(batch)) {
        const std::string steps = size == batch.global ? fmt::format("batch.global = {}", size)
                                                       : fmt::format("batch.ramp has steps of {}", size);
        if (size % count != 0) {
            const std::int64_t below = size / count * count;
            std::string ways = below == 0 ? fmt::format("{}", count) : fmt::format("{} or {}", below, below + count);
            if (parts.lanes) {
                std::int64_t fewer = std::min(size, count);
                while (size % fewer != 0) --fewer;
                ways = fmt::format("{} lane{}, or {} sequences", fewer, plural(fewer), ways);
            }
            throw usage_error("{} sequences, which do not divide evenly among {}; {} would", steps, all, ways);
        }
        const std::int64_t share = size / count;
        if (share % multiple != 0)
            throw usage_error(
                "{} sequences, {} for each {}, but parallel.interleave requires a multiple of "
                "parallel.pipeline = {} micro-batches; choose another batch size, {}parallel.interleave = 1",
                steps, share, each, multiple, parts.lanes ? "fewer lanes, or " : "or ");
        if (batch.micro > 0 && share % batch.micro != 0)
            throw usage_error("{} sequences, {} for each {}, which batch.micro = {} does not divide", steps, share,
                              each, batch.micro);
        common = std::gcd(common, share);
    }
    const std::int64_t most = common / multiple;  // sequences a micro-batch
    if (batch.micro > 0 && most % batch.micro != 0)
        throw usage_error(
            "batch.micro = {} leaves a number of micro-batches that is not a multiple of parallel.pipeline = {}, as "
            "parallel.interleave requires; set batch.micro to a divisor of {}",
            batch.micro, multiple, most);
    if (batch.micro > 0) return batch.micro;
    // As many sequences at once as fit so many tokens: larger products gain little, memory grows in proportion.
    const std::int64_t fitting = tokens_at_once / std::max<std::int64_t>(1, batch.length);
    std::int64_t micro = std::max<std::int64_t>(1, std::min({most, common / wanted, fitting}));
    while (most % micro != 0) --micro;
    return micro;
}

double validation_batches(const config::ValidationSection& validation, double steps) {
    if (validation.batches != config::ValidationSection::automatic) return static_cast<double>(validation.batches);
    const double between = validation.every > 0 ? std::min(static_cast<double>(validation.every), steps) : steps;
    return 0.3 * between;
}

}  // namespace lockstep::layout
