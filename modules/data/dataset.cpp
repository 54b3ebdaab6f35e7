#include "data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/random.hpp"
#include "data/sources.hpp"

namespace lockstep::data {

struct Dataset::Implementation {
    std::shared_ptr<const Sources> sources;
    std::string key;
    std::int64_t length = 0;
    std::int64_t first_window = 0, windows = 0;
    std::uint64_t seed = 0;
    bool random = false;
};

namespace {

std::shared_ptr<const Sources> open_sources(const DatasetOptions& options) {
    try {
        return std::make_shared<const Sources>(options.paths, options.tokenizer, options.kept_tokenizer);
    } catch (const Error& problem) {
        throw Error(problem.code(), options.key + ": " + problem.what());
    }
}

}  // namespace

bool has_plain_text(const std::vector<std::string>& paths) {
    std::error_code problem;
    return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
        return std::filesystem::exists(path, problem) && is_plain_text(path);
    });
}

Dataset::Dataset(const DatasetOptions& options) {
    if (options.length <= 0) throw usage_error("the sequence length {} must be at least 1", options.length);
    auto made = std::make_shared<Implementation>();
    made->sources = open_sources(options);
    made->key = options.key;
    made->length = options.length;
    made->seed = options.seed;
    made->random = options.random;
    const std::int64_t tokens = made->sources->tokens();
    made->windows = (tokens - 1) / options.length;
    if (made->windows < 1)
        throw usage_error(
            "{}: a sample needs {} tokens plus one, but the data has only {}; give more text or a smaller "
            "[batch] length",
            options.key, with_commas(options.length), with_commas(tokens));
    implementation_ = std::move(made);
}

Dataset::Dataset(std::shared_ptr<const Implementation> implementation) : implementation_(std::move(implementation)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

std::int64_t Dataset::tokens() const {
    return implementation_->sources->tokens();
}
std::int64_t Dataset::windows() const {
    return implementation_->windows;
}
std::int64_t Dataset::vocabulary() const {
    return implementation_->sources->vocabulary();
}

double Dataset::bytes_per_token() const {
    return implementation_->sources->bytes_per_token();
}
std::string Dataset::tokenizer_kind() const {
    return implementation_->sources->tokenizer_kind();
}
const TokenizerFiles& Dataset::tokenizer_files() const {
    return implementation_->sources->tokenizer_files();
}
std::uint64_t Dataset::checksum() const {
    return implementation_->sources->checksum();
}

Dataset Dataset::split_off(double fraction) {
    if (!(fraction > 0 && fraction < 1))
        throw usage_error("[data] validation = {} must be a fraction between 0 and 1", fraction);
    const std::int64_t windows = implementation_->windows;
    if (windows < 2)
        throw usage_error(
            "{}: the data is a single sequence of {} tokens, leaving none for validation; give more text or a "
            "smaller [batch] length",
            implementation_->key, with_commas(implementation_->length));
    // Guards against rounding: 0.1 of 30 is 3, although the floating-point product is larger.
    const double wanted = std::ceil(fraction * static_cast<double>(windows) * (1 - 1e-12));
    const std::int64_t taken = std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, windows - 1);
    auto kept = std::make_shared<Implementation>(*implementation_);
    kept->windows = windows - taken;
    auto split = std::make_shared<Implementation>(*implementation_);
    split->first_window += windows - taken;
    split->windows = taken;
    split->random = false;
    implementation_ = std::move(kept);
    return Dataset(std::shared_ptr<const Implementation>(std::move(split)));
}

void Dataset::fetch(std::int64_t number, std::int32_t* inputs, std::int32_t* targets) const {
    LOCKSTEP_ASSERT(number >= 0);
    const Implementation& my = *implementation_;
    std::int64_t window = number % my.windows;
    if (my.random) {
        std::array<char, 48> purpose;  // avoids allocation
        const auto end = fmt::format_to_n(purpose.data(), purpose.size(), "data order/epoch {}", number / my.windows);
        const RandomPermutation permutation(my.seed, std::string_view(purpose.data(), end.size),
                                            static_cast<std::uint64_t>(my.windows));
        window = static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(window)));
    }
    const std::int64_t begin = (my.first_window + window) * my.length;
    my.sources->copy(begin, my.length, inputs);
    std::copy(inputs + 1, inputs + my.length, targets);
    my.sources->copy(begin + my.length, 1, targets + my.length - 1);
}

}  // namespace lockstep::data
