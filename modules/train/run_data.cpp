#include "train/run_data.hpp"

#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/plural.hpp"
#include "cluster/agree.hpp"
#include "data/tokenizer.hpp"
#include "layout/batch_plan.hpp"
#include "model/mixers/registry.hpp"
#include "train/kept_tokenizer.hpp"

namespace lockstep::train {
namespace {

// Where both are known: else a loss would mean nothing.
void check_one_tokenizer(const RunData& run) {
    const std::string kind = run.validation->tokenizer_kind();
    if (kind.empty() || run.tokenizer_kind.empty() ||
        data::same_tokenizer(kind, run.validation->tokenizer_files(), run.tokenizer_kind, run.tokenizer_files))
        return;
    throw usage_error(
        "the validation data has a different {} from the training data ({}); pack both with the same tokenizer, or "
        "give plain text for validation",
        kind == run.tokenizer_kind ? "tokenizer model" : "tokenizer", run.tokenizer_kind);
}

void open_datasets(RunData& run, const config::RunDescription& description,
                   const std::shared_ptr<const data::Tokenizer>& tokenizer) {
    const auto& data = description.data;
    data::DatasetOptions options;
    options.paths = data.train;
    for (const config::WeightedPaths& part : data.mixture) options.mixture.push_back({part.paths, part.weight});
    options.jsonl_field = data.jsonl_field;
    options.kept_tokenizer = tokenizer;  // none: bytes
    options.length = description.batch.length;
    options.seed = description.run.seed;
    options.random = data.order == config::DataOrder::random;
    options.separate_documents = data.separates_documents();
    options.document_alignment = model::document_alignment(description.model);
    run.training.emplace(options);
    if (!data.validation.empty()) {
        const std::string kind = run.training->tokenizer_kind();
        if (data.tokenizer_is_automatic() && !kind.empty() && data::has_plain_text(data.validation))
            options.kept_tokenizer = data::make_tokenizer(kind, run.training->tokenizer_files());
        options.paths = data.validation;
        options.mixture.clear();
        options.key = "[data] validation";
        options.random = false;
        run.validation.emplace(options);
    } else if (data.validation_fraction > 0) {
        run.validation.emplace(run.training->split_off(data.validation_fraction));
    }
}

// Whether the tokens can be the tokenizer's.
bool fits(const data::Dataset& data, const data::Tokenizer& tokenizer) {
    return data.vocabulary() <= tokenizer.vocabulary();
}

void name_tokenizer(RunData& run, const data::Tokenizer* of_run) {
    const data::Dataset& training = *run.training;
    run.tokenizer_kind = training.tokenizer_kind();
    run.tokenizer_files = training.tokenizer_files();
    if (!run.tokenizer_kind.empty() || !of_run || !fits(training, *of_run)) return;
    run.tokenizer_kind = of_run->kind();
    run.tokenizer_files = of_run->files();
}

void warn_of_tokenizer(const RunData& run, const data::Tokenizer& of_run, const config::DataSection& data) {
    const data::Dataset& training = *run.training;
    const std::string kind = training.tokenizer_kind();
    if (kind.empty() && !fits(training, of_run))
        log::warning(
            "the training data has token {}, but the tokenizer ({}) has only {}; checkpoints will not store the "
            "tokenizer",
            training.vocabulary() - 1, of_run.kind(), of_run.vocabulary());
    if (!kind.empty() && !data.tokenizer_is_automatic() &&
        !data::same_tokenizer(kind, training.tokenizer_files(), of_run.kind(), of_run.files()))
        log::warning("data.tokenizer = {} is ignored: the training data was packed with another tokenizer ({})",
                     data.tokenizer, kind);
}

void check_vocabulary(const RunData& run, const config::RunDescription& description) {
    const std::int64_t of_model = description.model.vocabulary;
    for (const auto* set : {&run.training, &run.validation}) {
        if (!*set || (*set)->vocabulary() <= of_model) continue;
        const std::int64_t of_data = (*set)->vocabulary();
        const std::string larger = description.init.from.empty()
                                       ? fmt::format("set model.vocabulary to at least {} or ", of_data)
                                       : std::string();
        throw usage_error(
            "the {} data has a vocabulary of {} tokens, the model's is {}; {}use data packed for this model",
            set == &run.training ? "training" : "validation", of_data, of_model, larger);
    }
    if (run.training->vocabulary() < of_model)
        log::info("the data uses {} of the model's {} tokens", with_commas(run.training->vocabulary()),
                  with_commas(of_model));
}

std::int64_t count_steps(const config::RunDescription& description, std::int64_t windows) {
    const auto& schedule = description.schedule;
    std::int64_t steps = schedule.steps;
    if (steps == 0)
        steps = std::max<std::int64_t>(
            1, layout::steps_for(description.batch, schedule.epochs * static_cast<double>(windows)));
    if (schedule.warmup > steps)
        throw usage_error("schedule.warmup = {} exceeds the run's {} step{}", schedule.warmup, steps, plural(steps));
    return steps;
}

void log_data(const RunData& run, const config::BatchSection& batch) {
    std::int64_t samples = 0;
    if (batch.ramp)
        for (std::int64_t step = 0; step < run.steps; ++step) samples += layout::batch_after(batch, samples);
    else
        samples = run.steps * batch.global;
    const data::Dataset& training = *run.training;
    const std::vector<data::SourceSummary> sources = training.sources();
    log::info("training data: {} token{}, {} window{} of {}; {} step{} of {}{} sequence{} {} {:.2f} epochs{}",
              with_commas(training.tokens()), plural(training.tokens()), with_commas(training.windows()),
              plural(training.windows()), batch.length, with_commas(run.steps), plural(run.steps),
              batch.ramp ? "up to " : "", batch.global, plural(batch.global), run.steps == 1 ? "is" : "are",
              static_cast<double>(samples) / static_cast<double>(training.windows()),
              sources.size() > 1 ? " of all windows together" : "");
    if (training.separates_documents())
        log::info("{} document{}, kept apart{}", with_commas(training.documents()), plural(training.documents()),
                  training.padding_share() > 0
                      ? fmt::format("; {:.2f} % of tokens are padding", 100 * training.padding_share())
                      : "");
    if (sources.size() == 1) return;
    const std::vector<std::int64_t> counts = training.counts_before(samples);
    for (std::size_t i = 0; i < sources.size(); ++i)
        log::info("{:.3g} % of the samples from {}: {} window{}, {:.2f} epochs", 100 * sources[i].share,
                  sources[i].name, with_commas(sources[i].windows), plural(sources[i].windows),
                  static_cast<double>(counts[i]) / static_cast<double>(sources[i].windows));
}

}  // namespace

void check_same_on_all_ranks(const data::Dataset& data, const std::string& key, cluster::HostGroup& group) {
    std::vector<std::int64_t> least = {static_cast<std::int64_t>(data.checksum()), data.windows()}, most = least;
    group.all_reduce(least, cluster::Reduce::minimum);
    group.all_reduce(most, cluster::Reduce::maximum);
    if (least != most)
        throw usage_error("ranks see different data under the same paths ({}); use a file system that all nodes share",
                          key);
}

RunData open_run_data(const config::RunDescription& description, cluster::HostGroup& control) {
    RunData run;
    const auto tokenizer = tokenizer_of_run(description, control);
    cluster::together(control, [&] {
        open_datasets(run, description, tokenizer);
        name_tokenizer(run, tokenizer.get());
        if (run.validation) check_one_tokenizer(run);
        if (tokenizer && run.training->tokenizer_kind().empty() && run.tokenizer_kind == tokenizer->kind() &&
            tokenizer->vocabulary() > description.model.vocabulary)
            throw usage_error("data.tokenizer = {} has {} tokens, but the model's vocabulary has {}",
                              description.data.tokenizer, tokenizer->vocabulary(), description.model.vocabulary);
        if (tokenizer && control.rank() == 0) warn_of_tokenizer(run, *tokenizer, description.data);
        check_vocabulary(run, description);
        run.steps = count_steps(description, run.training->windows());
        log_data(run, description.batch);
    });
    check_same_on_all_ranks(*run.training, "[data] train", control);
    if (run.validation) check_same_on_all_ranks(*run.validation, "[data] validation", control);
    return run;
}

}  // namespace lockstep::train
