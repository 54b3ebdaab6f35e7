#include "data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/random.hpp"
#include "data/document_windows.hpp"
#include "data/mixture_order.hpp"
#include "data/sources.hpp"

namespace lockstep::data {

struct Dataset::Implementation {
    struct Part {
        std::shared_ptr<const Sources> sources;
        std::shared_ptr<const DocumentWindows> documents;  // null: documents are not kept apart
        std::string name;
        // Whole: of a mixture in units of 2^-24 of all weights, of what is split off its windows.
        double weight = 1;
        std::int64_t first_window = 0, windows = 0;
    };

    std::vector<Part> parts;
    MixtureOrder order{{1.0}};
    bool is_mixture = false;  // also of one source: named differently in the random numbers
    std::string key;
    std::int64_t length = 0, windows = 0;  // of all parts
    std::int64_t vocabulary = 0;
    std::uint64_t seed = 0;
    bool random = false;

    void mix() {
        std::vector<double> weights;
        for (const Part& part : parts) weights.push_back(part.weight);
        order = MixtureOrder(weights);
        windows = std::accumulate(parts.begin(), parts.end(), std::int64_t{0},
                                  [](std::int64_t sum, const Part& part) { return sum + part.windows; });
    }
    struct Window {
        const Part* part;
        std::int64_t number;  // of all windows of the part's source
    };
    // Of a sample. Does not allocate.
    Window window_of(std::int64_t sample) const {
        LOCKSTEP_ASSERT(sample >= 0);
        const MixtureOrder::Place place = order(sample);
        const Part& part = parts[place.source];
        const std::int64_t epoch = place.number / part.windows, in_epoch = place.number % part.windows;
        if (!random) return {&part, part.first_window + in_epoch};
        std::array<char, 64> purpose;
        const auto end = is_mixture ? fmt::format_to_n(purpose.data(), purpose.size(), "data order/source {}/epoch {}",
                                                       place.source, epoch)
                                    : fmt::format_to_n(purpose.data(), purpose.size(), "data order/epoch {}", epoch);
        const RandomPermutation permutation(seed, std::string_view(purpose.data(), end.size),
                                            static_cast<std::uint64_t>(part.windows));
        return {&part,
                part.first_window + static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(in_epoch)))};
    }
    double sum_of_weights() const {
        return std::accumulate(parts.begin(), parts.end(), 0.0,
                               [](double sum, const Part& part) { return sum + part.weight; });
    }
};

namespace {

std::shared_ptr<const Sources> open_sources(const DatasetOptions& options, const std::vector<std::string>& paths,
                                            std::uint64_t& room) {
    try {
        return std::make_shared<const Sources>(SourceOptions{paths, options.tokenizer, options.kept_tokenizer,
                                                             options.jsonl_field, options.separate_documents},
                                               room);
    } catch (const Error& problem) {
        throw Error(problem.code(), options.key + ": " + problem.what());
    }
}

std::string name_of(const std::vector<std::string>& paths) {
    if (paths.size() == 1) return paths.front();
    return fmt::format("{} and {} more", paths.front(), paths.size() - 1);
}

void check_same_tokenizer(const std::string& key, const std::string& first_name, const Sources& first,
                          const std::string& name, const Sources& other) {
    const bool known = !first.tokenizer_kind().empty() && !other.tokenizer_kind().empty();
    const bool same = first.tokenizer_kind() == other.tokenizer_kind() &&
                      (!known || (first.vocabulary() == other.vocabulary() &&
                                  same_tokenizer(first.tokenizer_kind(), first.tokenizer_files(),
                                                 other.tokenizer_kind(), other.tokenizer_files())));
    if (!same)
        throw usage_error(
            "{}: {} and {} were made with different tokenizers and cannot be mixed; pack all with the same one", key,
            first_name, name);
}

// Rounded to 2^-24 of their sum, so that the same shares are the same order and checksum however they are written: 2 to
// 1, or 0.66666667 to 0.33333333.
std::vector<double> rounded_weights(const std::vector<MixturePart>& mixture) {
    const double sum = std::accumulate(mixture.begin(), mixture.end(), 0.0,
                                       [](double before, const MixturePart& part) { return before + part.weight; });
    std::vector<double> weights;
    for (const MixturePart& part : mixture)
        weights.push_back(std::max(1.0, std::round(std::ldexp(part.weight / sum, 24))));
    return weights;
}

}  // namespace

Dataset::Dataset(const DatasetOptions& options) {
    if (options.length <= 0) throw usage_error("the sequence length {} must be at least 1", options.length);
    auto made = std::make_shared<Implementation>();
    made->key = options.key;
    made->length = options.length;
    made->seed = options.seed;
    made->random = options.random;
    made->is_mixture = !options.mixture.empty();
    std::uint64_t room = options.most_json_lines_bytes;
    const auto add = [&](const std::vector<std::string>& paths, double weight) {
        Implementation::Part part;
        part.sources = open_sources(options, paths, room);
        part.name = name_of(paths);
        part.weight = weight;
        const std::int64_t tokens = part.sources->tokens();
        part.windows = (tokens - 1) / options.length;
        if (options.separate_documents) {
            part.documents =
                std::make_shared<const DocumentWindows>(part.sources, options.length, options.document_alignment);
            part.windows = part.documents->windows();
            if (tokens == part.documents->documents())
                throw usage_error("{}: every document of {} is a single token, so there is nothing to predict",
                                  options.key, part.name);
        }
        if (part.windows < 1)
            throw usage_error(
                "{}: a sample needs {} tokens{}, but {} has only {}{}; give more text or a smaller "
                "[batch] length",
                options.key, with_commas(options.length), part.documents ? "" : " plus one",
                made->is_mixture ? part.name : "the data",
                with_commas(part.documents ? part.documents->padded_tokens() : tokens),
                options.separate_documents && options.document_alignment > 1 ? " with padding" : "");
        if (!made->parts.empty())
            check_same_tokenizer(options.key, made->parts.front().name, *made->parts.front().sources, part.name,
                                 *part.sources);
        made->vocabulary = std::max(made->vocabulary, part.sources->vocabulary());
        made->parts.push_back(std::move(part));
    };
    if (!made->is_mixture) add(options.paths, 1);
    const std::vector<double> weights = rounded_weights(options.mixture);
    for (std::size_t i = 0; i < weights.size(); ++i) add(options.mixture[i].paths, weights[i]);
    made->mix();
    implementation_ = std::move(made);
}

Dataset::Dataset(std::shared_ptr<const Implementation> implementation) : implementation_(std::move(implementation)) {}
Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

std::int64_t Dataset::tokens() const {
    std::int64_t sum = 0;
    for (const auto& part : implementation_->parts) sum += part.sources->tokens();
    return sum;
}
std::int64_t Dataset::windows() const {
    return implementation_->windows;
}
std::int64_t Dataset::vocabulary() const {
    return implementation_->vocabulary;
}
bool Dataset::separates_documents() const {
    return implementation_->parts.front().documents != nullptr;
}
std::int64_t Dataset::documents() const {
    std::int64_t sum = 0;
    for (const auto& part : implementation_->parts)
        if (part.documents) sum += part.documents->documents();
    return sum;
}
double Dataset::padding_share() const {
    if (!separates_documents()) return 0;
    std::int64_t padded = 0;
    for (const auto& part : implementation_->parts) padded += part.documents->padded_tokens();
    return static_cast<double>(padded - tokens()) / static_cast<double>(padded);
}
double Dataset::bytes_per_token() const {
    double bytes = 0;
    for (const auto& part : implementation_->parts) {
        const double of_part = part.sources->bytes_per_token();
        if (of_part == 0) return 0;
        bytes += of_part * static_cast<double>(part.sources->tokens());
    }
    return bytes / static_cast<double>(tokens());
}
std::string Dataset::tokenizer_kind() const {
    return implementation_->parts.front().sources->tokenizer_kind();
}
const TokenizerFiles& Dataset::tokenizer_files() const {
    return implementation_->parts.front().sources->tokenizer_files();
}

std::vector<SourceSummary> Dataset::sources() const {
    std::vector<SourceSummary> list;
    const double sum = implementation_->sum_of_weights();
    for (const auto& part : implementation_->parts)
        list.push_back({part.name, part.weight / sum, part.sources->tokens(), part.windows});
    return list;
}

std::vector<std::int64_t> Dataset::counts_before(std::int64_t number) const {
    return implementation_->order.counts_before(number);
}

std::uint64_t Dataset::checksum() const {
    const Implementation& my = *implementation_;
    if (!my.is_mixture && !separates_documents()) return my.parts.front().sources->checksum();
    std::vector<std::uint64_t> all;
    for (const auto& part : my.parts) {
        if (my.is_mixture) all.push_back(static_cast<std::uint64_t>(part.weight));
        all.push_back(part.sources->checksum());
        if (part.documents) all.push_back(part.documents->checksum());
    }
    return hash64(all.data(), all.size() * sizeof all[0]);
}

Dataset Dataset::split_off(double fraction) {
    if (!(fraction > 0 && fraction < 1))
        throw usage_error("[data] validation = {} must be a fraction between 0 and 1", fraction);
    auto kept = std::make_shared<Implementation>(*implementation_);
    auto split = std::make_shared<Implementation>(*implementation_);
    split->random = false;
    for (std::size_t i = 0; i < kept->parts.size(); ++i) {
        auto &of_kept = kept->parts[i], &of_split = split->parts[i];
        const std::int64_t windows = of_kept.windows;
        if (windows < 2)
            throw usage_error(
                "{}: {} is a single sequence of {} tokens, leaving none for validation; give more text or a "
                "smaller [batch] length",
                kept->key, kept->is_mixture ? of_kept.name : "the data", with_commas(kept->length));
        // Guards against rounding: 0.1 of 30 is 3, although the floating-point product is larger.
        const double wanted = std::ceil(fraction * static_cast<double>(windows) * (1 - 1e-12));
        const std::int64_t taken = std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted), 1, windows - 1);
        of_kept.windows = windows - taken;
        of_split.first_window += windows - taken;
        of_split.windows = taken;
        of_split.weight = static_cast<double>(taken);
    }
    kept->mix();
    split->mix();
    implementation_ = std::move(kept);
    return Dataset(std::shared_ptr<const Implementation>(std::move(split)));
}

void Dataset::fetch(std::int64_t number, std::int32_t* inputs, std::int32_t* targets) const {
    const auto [part, window] = implementation_->window_of(number);
    if (part->documents) {
        part->documents->fetch(window, inputs, targets);
        return;
    }
    const std::int64_t length = implementation_->length, begin = window * length;
    part->sources->copy(begin, length, inputs);
    std::copy(inputs + 1, inputs + length, targets);
    part->sources->copy(begin + length, 1, targets + length - 1);
}

void Dataset::fetch_documents(std::int64_t number, std::int32_t* starts, std::int32_t* ends) const {
    const auto [part, window] = implementation_->window_of(number);
    LOCKSTEP_ASSERT(part->documents);
    part->documents->fetch_documents(window, starts, ends);
}

std::int64_t Dataset::counted_tokens(std::int64_t number) const {
    const auto [part, window] = implementation_->window_of(number);
    return part->documents ? part->documents->counted_tokens(window) : implementation_->length;
}

}  // namespace lockstep::data
